//! Checks that a kernel is well formed, before anything runs or compiles it. All errors at once.
//!
//! The kernel:
//! * `threads` is a multiple of 32 in 32 ..= 1024; `blocks_per_sm` ≥ 1; the name is an identifier;
//! * shared arrays together fit the target; every type is concrete (neither `call` nor `tuple`);
//! * [`ParamKind::Control`](crate::tile::ParamKind) and message parameters are used as such only.
//!
//! Every statement:
//! * registers, parameters and shared arrays exist, constants fit their type, operand types are those of the statement;
//! * a register is assigned on every path before it is read: an `If` assigns what both branches assign, a `For` its
//!   variable (its body may not run at all), a `Loop` what is assigned at every `Break`. A poll reads its values and
//!   tags before it writes them;
//! * only operations that all back ends have: transcendental functions are expanded ([`crate::math`]), there is no
//!   remainder of floats, and the only atomic is on a control word;
//! * the body of a `For` does not assign its variable or the registers of its bound and step; a constant step is
//!   positive; `Break` stands inside a `Loop`, and every `Loop` has one;
//! * a vector has 1, 2, 4 or 8 elements and at most 16 bytes; a `CopyAsync` has 4, 8 or 16 bytes;
//! * products of warpgroups occur only for targets and numbers of threads that have warpgroups, with up to 256 columns, on
//!   aligned panels of 16-bit elements;
//! * a matrix product has factors of `bf16`, `f16` or `f32`; 1, 2 or 4 matrices are loaded, of elements of 2 or 4
//!   bytes;
//! * no store to a parameter that is only read; both sides of a copy have one element type, or one width in a `CopyAsync`; a
//!   constant index of two or more message words is even; an array of mbarriers is used as such only;
//! * a barrier's id is below 16, its threads a multiple of 32, not more than the block has; id 0 is the whole block;
//! * bulk copies, announced bytes and their fence occur only for targets that have them.
//!
//! Rules that depend on values (bounds, alignment, races, divergence) are checked by the [simulator](crate::simulate).

mod expr;
mod flow;
mod statement;
#[cfg(test)]
mod tests;

use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};

use self::flow::Assigned;
use crate::target::Target;
use crate::tile::path::{Path, Step};
use crate::tile::{Kernel, Memory, Operand, ParamKind, Reg, SharedKind, Stmt};

/// A rule that a kernel breaks, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path}{}: {fault}", if line.is_empty() { String::new() } else { format!(" `{line}`") })]
pub struct VerifyError {
    /// The statement; empty for the kernel as a whole.
    pub path: Path,
    /// The text of the statement.
    pub line: String,
    /// The fault, in words.
    pub fault: Fault,
}

/// The faults that a kernel can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The kernel's name cannot be a symbol.
    #[error("`{0}` is not an identifier")]
    Name(String),
    /// The number of threads is impossible.
    #[error("{0} threads: must be a multiple of 32 from 32 to 1024")]
    Threads(u32),
    /// `blocks_per_sm` is zero.
    #[error("blocks_per_sm is 0")]
    NoBlocks,
    /// The shared arrays are too large.
    #[error("shared arrays take {bytes} bytes, the target has {limit}")]
    SharedBytes {
        /// The bytes that the arrays take.
        bytes: u64,
        /// The bytes that the target has.
        limit: u32,
    },
    /// A register, parameter or array has no concrete type.
    #[error("{0} has no concrete type")]
    Abstract(String),
    /// A register, parameter or array that was never declared.
    #[error("there is no {0}")]
    Undeclared(String),
    /// A constant that its type cannot hold.
    #[error("{what}: the constant does not fit {ty}")]
    Constant {
        /// The operand's role.
        what: &'static str,
        /// The constant's type.
        ty: Ty,
    },
    /// An operand of the wrong type.
    #[error("{what} is {found}, must be {expected}")]
    Type {
        /// The operand's role.
        what: &'static str,
        /// Its type.
        found: Ty,
        /// The type or class of types it must have.
        expected: &'static str,
    },
    /// A register that is not assigned on every path to its use.
    #[error("register {} may be read before it is assigned", .0.0)]
    Unassigned(Reg),
    /// A function that back ends do not have.
    #[error("{0:?} must be expanded by `math::expand`")]
    Unexpanded(Unary),
    /// A function that this type does not have.
    #[error("{op:?} is not defined for {ty}")]
    NoSuchFunction {
        /// The function.
        op: Unary,
        /// The operand's type.
        ty: Ty,
    },
    /// A binary operation that this type does not have.
    #[error("{op:?} is not defined for {ty}")]
    NoSuchOperation {
        /// The operation.
        op: Binary,
        /// The operands' type.
        ty: Ty,
    },
    /// A loop that can never end.
    #[error("the loop has no break")]
    NoBreak,
    /// A break outside a loop.
    #[error("break outside a loop")]
    NoLoop,
    /// A loop's body changes the variable, the bound or the step.
    #[error("the body assigns register {}, which controls the loop", .0.0)]
    LoopControl(Reg),
    /// A step that does not advance.
    #[error("step {0}: must be positive")]
    Step(i64),
    /// A vector access of an impossible width.
    #[error("{count} elements of {bytes} bytes: a vector has 1, 2, 4 or 8 elements and at most 16 bytes")]
    Vector {
        /// The number of elements.
        count: usize,
        /// Bytes of one.
        bytes: usize,
    },
    /// An element type that the statement does not take.
    #[error("elements of {found}: must be {expected}")]
    Elements {
        /// The element type.
        found: Elem,
        /// The element types it takes.
        expected: &'static str,
    },
    /// A number of matrices that no instruction loads.
    #[error("{0} matrices: must be 1, 2 or 4")]
    Matrices(usize),
    /// Sums that no warpgroup's product has.
    #[error(
        "{sums} sums of a warpgroup's product in {steps} steps: must be four for each 8 columns, up to 128, and a step"
    )]
    Warpgroup {
        /// Registers of sums.
        sums: usize,
        /// Steps.
        steps: usize,
    },
    /// Panels that a warpgroup cannot read.
    #[error(
        "panels in `{name}` with rows of {row} elements, {apart} apart: must be 16, 32 or 64, a multiple of 8 rows apart, at a multiple of 1024 bytes"
    )]
    Panels {
        /// The array.
        name: String,
        /// Elements of a row.
        row: u32,
        /// Elements from one panel to the next.
        apart: u32,
    },
    /// A per-thread copy of an impossible size.
    #[error("a copy of {0} bytes: must be 4, 8 or 16")]
    CopyBytes(u64),
    /// A parameter or array used as what it is not.
    #[error("`{name}` is {found}, must be {expected}")]
    Kind {
        /// Its name.
        name: String,
        /// Its kind.
        found: String,
        /// The type that it must be.
        expected: String,
    },
    /// Two or more message words at an odd index.
    #[error("{words} message words at index {index}: must be even")]
    OddMessage {
        /// The number of words.
        words: usize,
        /// The index.
        index: i64,
    },
    /// A message without words, or a poll entry with other than one tag per value.
    #[error("{values} values with {tags} tags: must be as many, at least one")]
    Words {
        /// Values.
        values: usize,
        /// Tags.
        tags: usize,
    },
    /// An impossible barrier.
    #[error("barrier {id} for {threads} threads: id 0 is for all {all} threads, 1 to 15 for a multiple of 32 of them")]
    Barrier {
        /// Its id.
        id: u32,
        /// The number of threads that it counts.
        threads: u32,
        /// The number of threads.
        all: u32,
    },
    /// A bound of registers that a warp cannot have.
    #[error("{0} registers per thread: must be a multiple of 8, 24 to 256")]
    Registers(u32),
    /// A count of arrivals that an mbarrier cannot have.
    #[error("an mbarrier of {0} arrivals: must be 1 to 1048575")]
    Arrivals(u32),
    /// More products of a warpgroup than may be left unfinished.
    #[error("a wait that leaves {0} products unfinished: 7 at most")]
    Pending(u32),
    /// A statement that the target's instruction set lacks.
    #[error("{0} has no bulk copies")]
    NoBulkCopies(&'static str),
    /// A statement that the target's instruction set lacks.
    #[error("{0} has no products of warpgroups")]
    NoWarpgroups(&'static str),
    /// A statement that the target's instruction set lacks.
    #[error("{0} has no stores of matrices")]
    NoStoresOfMatrices(&'static str),
}

/// Checks everything that the [module documentation](self) lists.
///
/// # Errors
///
/// Every rule that is broken, in the order of the statements.
pub fn verify(kernel: &Kernel, target: &Target) -> Result<(), Vec<VerifyError>> {
    let mut checker =
        Checker { kernel, target, path: Path::default(), errors: vec![], loops: vec![], controls: vec![] };
    checker.kernel();
    let mut assigned = Assigned::none(kernel.regs.len());
    checker.list(&kernel.body, &mut assigned);
    if checker.errors.is_empty() { Ok(()) } else { Err(checker.errors) }
}

/// The walk over a kernel.
struct Checker<'k> {
    kernel: &'k Kernel,
    target: &'k Target,
    path: Path,
    errors: Vec<VerifyError>,
    /// For every enclosing `Loop`, what is assigned at all of its breaks so far.
    loops: Vec<Option<Assigned>>,
    /// Registers that control enclosing `For`s.
    controls: Vec<Reg>,
}

impl Checker<'_> {
    fn fault(&mut self, fault: Fault) {
        let line = self.path.statement(self.kernel).map(|s| self.kernel.line(s)).unwrap_or_default();
        let error = VerifyError { path: self.path.clone(), line, fault };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn kernel(&mut self) {
        let kernel = self.kernel;
        if !is_identifier(&kernel.name) {
            self.fault(Fault::Name(kernel.name.clone()));
        }
        if !kernel.threads.is_multiple_of(32) || !(32..=1024).contains(&kernel.threads) {
            self.fault(Fault::Threads(kernel.threads));
        }
        if kernel.blocks_per_sm == 0 {
            self.fault(Fault::NoBlocks);
        }
        let bytes = |s: &crate::tile::Shared| (u64::from(s.len) * u64::from(s.kind.bytes())).next_multiple_of(128);
        let (bytes, limit) = (kernel.shared.iter().map(bytes).sum(), self.target.shared_bytes);
        if bytes > u64::from(limit) {
            self.fault(Fault::SharedBytes { bytes, limit });
        }
        self.declarations();
    }

    fn declarations(&mut self) {
        let is_abstract = |ty: Ty| matches!(ty, Ty::Call | Ty::Wide | Ty::Tuple);
        for param in &self.kernel.params {
            let ty = match param.kind {
                ParamKind::Read(e) | ParamKind::Write(e) => e.value(),
                ParamKind::Scalar(ty) => ty,
                ParamKind::Messages | ParamKind::Control => continue,
            };
            if is_abstract(ty) {
                self.fault(Fault::Abstract(format!("parameter `{}`", param.name)));
            }
        }
        for array in &self.kernel.shared {
            if matches!(array.kind, SharedKind::Elem(e) if is_abstract(e.value())) {
                self.fault(Fault::Abstract(format!("array `{}`", array.name)));
            }
        }
        for (i, ty) in self.kernel.regs.iter().enumerate() {
            if is_abstract(*ty) {
                self.fault(Fault::Abstract(format!("register {i}")));
            }
        }
    }

    fn list(&mut self, list: &[Stmt], assigned: &mut Assigned) {
        for (i, stmt) in list.iter().enumerate() {
            self.path.push(Step::At(i as u32));
            self.statement(stmt);
            self.flow(stmt, assigned);
            self.path.pop();
        }
    }

    /// The type of an operand that must be of one type, if it is a sound operand.
    fn typed(&mut self, what: &'static str, operand: Operand, expected: Ty) {
        if let Some(found) = self.ty(what, operand)
            && found != expected
        {
            self.fault(Fault::Type { what, found, expected: expected.name() });
        }
    }

    /// The element type behind a memory, if it has one.
    fn elements(&mut self, memory: Memory) -> Option<oplus_dsl::Elem> {
        let (name, found) = match memory {
            Memory::Global(p) => match self.kernel.params.get(p.0 as usize) {
                Some(param) => (param.name.clone(), param.kind.to_string()),
                None => return self.undeclared(format!("parameter {}", p.0)),
            },
            Memory::Shared(s) => match self.kernel.shared.get(s.0 as usize) {
                Some(array) => (array.name.clone(), array.kind.to_string()),
                None => return self.undeclared(format!("shared array {}", s.0)),
            },
        };
        let elem = self.kernel.elem(memory);
        if elem.is_none() {
            self.fault(Fault::Kind { name, found, expected: "an array of elements".into() });
        }
        elem
    }

    fn undeclared<T>(&mut self, what: String) -> Option<T> {
        self.fault(Fault::Undeclared(what));
        None
    }
}

/// Whether the text can be a PTX symbol.
fn is_identifier(name: &str) -> bool {
    let starts = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
