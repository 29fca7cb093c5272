//! The tile IR: one GPU kernel as a structured SIMT program. Kernels, operands and computations are in this file, statements in
//! `statement`; what follows from them, types and places in memory, is in `layout`. These docs are the specification; `verify`
//! checks it, `simulate` runs it on the CPU, `oplus-llvm` lowers it to PTX. [`text`] specifies how kernels are printed and read back.
//!
//! # Execution
//!
//! A kernel runs as a grid of blocks of [`Kernel::threads`] threads, in warps of 32. Every thread executes the same
//! statements on its own registers. There are no functions, no pointers and no arrays of registers: what is unrolled is
//! unrolled by the schedule that wrote the kernel. Control flow is structured ([`Stmt::If`], [`Stmt::For`],
//! [`Stmt::Loop`] with [`Stmt::Break`]); threads of a warp that take different branches meet again at its end.
//!
//! *Warp-collective* statements ([`Stmt::Shuffle`], [`Stmt::All`], [`Stmt::SyncWarp`], [`Stmt::LoadMatrix`],
//! [`Stmt::StoreMatrix`], [`Stmt::Mma`], [`Stmt::WarpgroupMma`], [`Stmt::WarpgroupWait`]) must be reached by all 32 lanes of a warp together,
//! [`Stmt::Barrier`] by all threads it counts. A branch that contains one must be uniform there.
//!
//! # Registers and operands
//!
//! A [`Reg`] has a type ([`Kernel::regs`]) and may be assigned many times; it must be assigned before it is read on
//! every path. Arithmetic is that of the program IR ([`Unary`], [`Binary`]); [`Expr::Fma`] rounds once, and no other
//! pair of operations is ever fused, so that bits do not depend on the compiler. Of the [`Unary`] functions only those
//! of [`crate::math::is_native`] occur; [`crate::math::expand`] writes the others in terms of them.
//!
//! # Memory
//!
//! * *Global*: a pointer parameter and an element index (`i64`). A vector access of n registers reads or writes n
//!   consecutive elements and needs its byte address to be a multiple of the access. An access may be guarded by a
//!   `bool`: a load whose guard is false gives `otherwise`, a store does nothing.
//! * *Shared*: arrays declared by the kernel ([`Kernel::shared`]), indexed by element (`i32`), contents undefined at
//!   the start. All accesses between threads must be ordered by a barrier, a warp barrier or an mbarrier.
//! * Elements narrower than their value type are widened by loads and rounded by stores. An access of an array of `bf16` or
//!   `f16` may have `u32` registers instead, each with the bits of two elements, the first in the low half.
//!
//! # Asynchronous copies
//!
//! An *mbarrier* (a shared array of [`SharedKind::Mbarrier`]) counts arrivals and bytes; its phase completes when both
//! are zero, and [`Stmt::MbarrierWait`] waits for the phase of a parity (0, 1, 0, …). [`Stmt::BulkLoad`] copies
//! contiguous elements from global to shared memory and completes on an mbarrier that was told its bytes by
//! [`Stmt::MbarrierExpect`]; addresses and sizes are multiples of 16 bytes. [`Stmt::CopyAsync`] is the per-thread form
//! for any layout, and copies bits: the array's elements may be of another type of the same width. [`Stmt::CopyAsyncArrive`] makes one arrival on an mbarrier when the thread's earlier copies have
//! landed. [`Stmt::BulkStore`] goes the other way; the threads that wrote the shared memory execute
//! [`Stmt::FenceAsync`] and then a barrier before one thread issues it, and the memory may be written again after
//! [`Stmt::BulkWait`]. A block must not end before its copies have landed, or for stores, have read their source.
//!
//! # Matrix fragments
//!
//! A warp holds a small matrix as a *fragment*, some elements in each lane. [`Stmt::Mma`] computes D = A·B + C, A of
//! 16 × K, B of K × 8, C and D of 16 × 8 elements; C and D are `f32`. With g = lane / 4 and t = lane mod 4:
//!
//! * C and D, registers r = 0 … 3 of `f32`: row g + 8·(r / 2), column 2t + r mod 2;
//! * factors of 16 bits (K = 16): a `u32` register holds two elements, half h = 0 in the low bits.
//!   A, r = 0 … 3: row g + 8·(r mod 2), column 2t + 8·(r / 2) + h. B, r = 0, 1: row 2t + 8r + h, column g;
//! * factors of `f32` (K = 8): a `u32` register holds the bits of one element, of which the lowest 13 are ignored
//!   ("tf32"). A, r = 0 … 3: row g + 8·(r mod 2), column t + 4·(r / 2). B, r = 0, 1: row t + 4r, column g.
//!
//! So two neighbouring 16 × 8 results, rounded and packed ([`Expr::Pack`]), are the fragment of a 16 × 16 factor A. An
//! element of D is the exact sum of products and C, rounded, up to an error of a few units in the last place of the
//! largest term; the same operands give the same bits.
//!
//! [`Stmt::LoadMatrix`] reads 8 × 8 matrices of 16-bit elements from shared memory: row i of matrix m is the 16 bytes
//! that lane 8m + i names, and lane 4g + t receives elements 2t (low) and 2t + 1 of row g; transposed, elements g of rows
//! 2t and 2t + 1. Of an array of 32-bit elements a row is four of them, and the lane receives element t of row g; transposed,
//! their halves count as elements of 16 bits, the low one first. Rows
//! are read without bank conflicts when their eight 16-byte pieces lie in different places modulo 128 bytes, see
//! [`crate::build::swizzle`]. [`Stmt::StoreMatrix`] writes matrices of 16-bit elements in the same places.
//!
//! [`Stmt::WarpgroupMma`] is the product for the four warps of a *warpgroup* (warps 4k … 4k + 3) together, of which warp w
//! has rows 16·(w mod 4) and on of 64; A is in registers, as fragments, or in shared memory like B. It only starts: until a
//! [`Stmt::WarpgroupWait`] that names them and leaves fewer products behind it, nothing may touch its sums nor write the shared
//! memory that it reads. Products end in the order in which they started. Factors in shared memory
//! ([`Panels`]) are of 16 bits and lie in panels: rows of 16, 32 or 64 elements, one after the other, whose 16-byte pieces are
//! swizzled. Element (i, k) of A and element (k, i) of B lie in row i at place k from the panel's index on; of a transposed B
//! element (k, i) lies in row k at place i, or, where i reaches beyond the row, in a later panel. Generic writes to shared memory that
//! it reads must be followed by a [`Stmt::FenceAsync`]: of the writer before it signals, or of the warps that read.
//!
//! # Messages between blocks
//!
//! A *message word* is 64 bits in global scratch: a 32-bit value and the 32-bit *tag* of the launch. It is written
//! ([`Stmt::Publish`]) and read ([`Stmt::Poll`]) whole, so the tag proves the value and nothing else need be ordered. Where a
//! message stands for something in global memory, [`Stmt::FenceDevice`] stands before it is published and after it was polled. A
//! word is published once with one tag. [`Stmt::Poll`] reads again those entries whose tags are still missing; a loop
//! around it waits. Tickets are drawn with [`Stmt::DrawTicket`], the only atomic: the *control word* is 64 bits, the next
//! ticket in its lower half and the tag of the launch in its upper half, so that one addition gives both. There are no
//! float atomics.

mod layout;
mod parse;
pub mod path;
mod print;
mod statement;
pub mod text;

pub use layout::elements_of_register;
pub use parse::{ParseError, Source};
pub use statement::{PollEntry, Stmt};

use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

/// A kernel: see the [module documentation](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The symbol, a valid PTX identifier.
    pub name: String,
    /// The parameters that the launch passes, in order.
    pub params: Vec<Param>,
    /// Threads per block, a multiple of 32.
    pub threads: u32,
    /// Blocks that should fit a multiprocessor at once (bounds the registers per thread).
    pub blocks_per_sm: u32,
    /// Whether the L2 cache should keep what is read rather than what is written. It changes nothing but the time.
    pub keep_reads: bool,
    /// Whether the address of an index that is a sum is found from that of its first operand; else indices are added up before they
    /// become an address. It changes nothing but the time.
    pub chain_addresses: bool,
    /// Shared arrays, laid out in this order, each at a multiple of 128 bytes.
    pub shared: Vec<Shared>,
    /// The type of every register.
    pub regs: Vec<Ty>,
    /// The statements.
    pub body: Vec<Stmt>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name, for printing.
    pub name: String,
    /// Its kind.
    pub kind: ParamKind,
}

/// The kinds of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A pointer to elements that the kernel only reads.
    Read(Elem),
    /// A pointer to elements that the kernel writes (and may read back).
    Write(Elem),
    /// A pointer to message words (64 bits each), zero before the first launch that uses them.
    Messages,
    /// A pointer to the control word (64 bits): the next ticket in the lower half, the tag of the launch in the upper half. It is
    /// ticket 0 and tag 1 before the first launch.
    Control,
    /// A number of that type.
    Scalar(Ty),
}

/// A shared array.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Its name, for printing.
    pub name: String,
    /// Its elements.
    pub kind: SharedKind,
    /// Their number.
    pub len: u32,
}

/// The elements of a shared array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedKind {
    /// Elements.
    Elem(Elem),
    /// Mbarriers, 8 bytes each.
    Mbarrier,
}

/// A register: index into [`Kernel::regs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// A kernel parameter: index into [`Kernel::params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u32);

/// A shared array: index into [`Kernel::shared`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub u32);

/// A register or a constant of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// The register's value.
    Reg(Reg),
    /// A constant that its type holds: of `f32`, a number that is rounded to it already.
    Const(Ty, Literal),
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// A pointer parameter; indices are `i64`.
    Global(ParamId),
    /// A shared array; indices are `i32`.
    Shared(SharedId),
}

/// One mbarrier: an element of a shared array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mbarrier {
    /// The array.
    pub array: SharedId,
    /// Which one, `i32`.
    pub index: Operand,
}

/// A computation without effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expr {
    /// The operand itself.
    Copy(Operand),
    /// A function of one value.
    Unary(Unary, Operand),
    /// A function of two values of one type.
    Binary(Binary, Operand, Operand),
    /// a·b + c, rounded once. Floats only.
    Fma(Operand, Operand, Operand),
    /// `if c { a } else { b }`.
    Select(Operand, Operand, Operand),
    /// Conversion to the register's type, through the rounding of an element type.
    Convert(Elem, Operand),
    /// Bits reinterpreted as the register's type, of the same size (`f32` and `u32`/`i32`, `f64` and `u64`/`i64`).
    Bits(Operand),
    /// A scalar parameter.
    Param(ParamId),
    /// A built-in number, `i32`.
    Special(Special),
    /// Two `f32` rounded to an element type of 16 bits, in a `u32`: the first in the low half.
    Pack(Elem, Operand, Operand),
    /// The `f32` of the element of 16 bits in one half of a `u32`.
    Unpack(Elem, Half, Operand),
    /// 2ˣ by the special-function unit, `f32`: at most 2 ulp for a finite result, denormals flushed.
    Exp2Fast(Operand),
    /// log₂ x by the special-function unit, `f32`: absolute error at most 2⁻²² near 1, 2 ulp elsewhere.
    Log2Fast(Operand),
    /// tanh x by the special-function unit, `f32`: relative error at most 2⁻¹¹.
    TanhFast(Operand),
    /// 1/x by the special-function unit, `f32`: at most 1 ulp, denormals flushed.
    RecipFast(Operand),
}

/// A factor in shared memory: 16-bit elements in swizzled panels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Panels {
    /// The array; it begins at a multiple of 1024 bytes.
    pub array: SharedId,
    /// The index of the first element as if nothing were swizzled, `i32`; uniform over the warpgroup.
    pub index: Operand,
    /// Elements of a row: 16, 32 or 64.
    pub row: u32,
    /// Elements from one panel to the next.
    pub apart: u32,
}

/// The left factor of a warpgroup's product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Left {
    /// A fragment of the warp's 16 rows, `u32`.
    Registers([Operand; 4]),
    /// 64 rows in shared memory.
    Shared(Panels),
}

/// A half of a `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The low 16 bits.
    Low,
    /// The high 16 bits.
    High,
}

/// Built-in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// Index of the thread in its block.
    Thread,
    /// Index of the block in the grid (x).
    Block,
    /// Index of the block in the grid (y).
    BlockY,
    /// Blocks in the grid (x).
    Blocks,
    /// Index of the thread in its warp.
    Lane,
    /// Index of the warp in its block; uniform over the warp.
    Warp,
}

/// The way in which a shuffle names its source lane. A source outside the warp gives the lane's own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// lane − n.
    Up,
    /// lane + n.
    Down,
    /// lane ⊻ n.
    Xor,
    /// n.
    Index,
}
