//! Machine code for the processor of this machine: the steps of a recurrence over many lanes.
//!
//! The CPU engine of the runtime cuts a tile of a sequence into [`LANES`] parts of equal length, which are the lanes. A [`Sweep`] says what one step
//! computes; [`compile`] makes a [`Function`] that takes all steps of all lanes. Numbers lie in memory in the order of the sequence. The
//! function loads squares of them, as many steps as a vector has lanes, turns these squares in registers, takes the steps, and turns the
//! results back to where they belong. A sweep for totals keeps its squares for the one for results.
//!
//! Every operation is rounded by itself, in the order of the nodes: nothing is fused or reordered, so the results do not depend on
//! the processor.

mod function;
mod machine;
#[cfg(test)]
mod tests;
mod text;

use oplus_dsl::ir::{Binary, Unary};

pub use function::{Float, Function, Steps, Tensors};

use crate::CompileError;

/// How many parts the engine cuts a tile into.
pub const LANES: usize = 64;

/// The type of all numbers of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
}

/// An operand of a node of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input at this step.
    Input(usize),
    /// A field of the state before the step.
    Before(usize),
    /// A field of the state after the step, which only nodes of results read.
    After(usize),
    /// An earlier node.
    Node(usize),
}

/// The computation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A number, as the bits of an `f64`.
    Const(u64),
    /// A truth value.
    Flag(bool),
    /// A function of one number, or `Not` of a truth value.
    Unary(Unary),
    /// A function or a comparison of two numbers.
    Binary(Binary),
    /// `And`, `Or`, `Xor`, `Eq` or `Ne` of two truth values.
    Logic(Binary),
    /// The second operand where the first one is true, else the third.
    Select,
}

/// An operation of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its computation.
    pub action: Action,
    /// Whether its result is a truth value.
    pub is_flag: bool,
    /// Its operands.
    pub operands: Vec<Source>,
}

/// How the numbers of an input lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// One for each step of each lane, in the order of the sequence.
    Each,
    /// One for all.
    One,
    /// One for each step of each lane, in the squares that a sweep which [keeps](Sweep::keeps) them has turned before. They stand in the
    /// order of that sweep's inputs.
    Kept,
}

/// The steps of a recurrence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sweep {
    /// The type of all numbers.
    pub number: Number,
    /// Whether steps go from the last number of the sequence to the first.
    pub is_reversed: bool,
    /// How many lanes there are: [`LANES`], or one.
    pub lanes: usize,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// The nodes whose values the next state is made of.
    pub nodes: Vec<Node>,
    /// The next value of each field; `None` for one that keeps its value.
    pub next: Vec<Option<Source>>,
    /// More nodes, which read the states before and after the step. They are numbered on from `nodes`.
    pub after: Vec<Node>,
    /// The numbers that go to memory at each step.
    pub outputs: Vec<Source>,
    /// Whether the first step of the first lane may be left out: its state stays what it was.
    pub may_leave_out: bool,
    /// Whether the state after the last step of the last lane is given, for the results of that step.
    pub is_closed: bool,
    /// Whether its turned inputs are kept for another sweep.
    pub keeps: bool,
}

impl Sweep {
    /// The inputs with squares that are kept, by this sweep or by another.
    fn kept(&self) -> Vec<usize> {
        let how = if self.keeps { Input::Each } else { Input::Kept };
        (0..self.inputs.len()).filter(|k| self.inputs[*k] == how).collect()
    }
}

/// Whether a unary operation has machine code that rounds as the engine does.
pub fn takes_unary(op: Unary) -> bool {
    matches!(op, Unary::Neg | Unary::Not | Unary::Abs | Unary::Sqrt | Unary::Recip | Unary::Relu | Unary::Powi(2))
}

/// Whether a binary operation of numbers has machine code that rounds as the engine does.
pub fn takes_binary(op: Binary) -> bool {
    let is_arithmetic = matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min);
    is_arithmetic || op.is_comparison()
}

/// The function of a sweep. It stays in memory until the process ends.
///
/// # Errors
/// [`CompileError::Lowering`] for an operation that has no machine code here or a source that does not exist, and on processors that
/// there is no back end for; [`CompileError::Llvm`] where LLVM refuses.
pub fn compile(sweep: &Sweep) -> Result<Function, CompileError> {
    let machine = machine::Machine::here()?;
    let width = machine.lanes(sweep.number).min(sweep.lanes);
    let text = text::write(sweep, width)?;
    let address = machine.load(&text, text::NAME)?;
    Ok(Function::new(sweep, width, address))
}
