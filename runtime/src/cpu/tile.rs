//! Tile programs: straight-line code over registers, each of which holds a dense block of values.
//!
//! The axes of a stage have a fixed order, outermost first; a register varies over some of them (bit k of its `dims`
//! for axis k). A tile is a box of indices.

use std::sync::Arc;

use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

use super::frame::Sweeping;
use super::lanes::Combination;
use super::loops::PerAxis;

/// A register: index into [`Code::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reg(pub(super) usize);

/// The contents of a register, and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Register {
    pub(super) ty: Ty,
    pub(super) dims: u64,
    /// The memory it shares with registers that are not used at the same time.
    pub(super) slot: usize,
}

/// The instructions of a stage and what they work on.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) registers: Vec<Register>,
    pub(super) instructions: Vec<Instruction>,
}

/// One operation on registers.
#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) op: TileOp,
    /// The operands, in order.
    pub(super) operands: Vec<Reg>,
    /// The result; of a combination, nothing.
    pub(super) result: Option<Reg>,
    /// The operands whose values nothing needs any more, bit k for operand k.
    pub(super) spent: u64,
}

/// The value that an instruction computes.
#[derive(Debug)]
pub(super) enum TileOp {
    Const(Literal),
    /// The index along an axis of the stage, plus an offset.
    Index {
        axis: usize,
        offset: i64,
    },
    /// Whether the index along an axis of the stage, plus an offset, compares so with a bound.
    Guard(Guard),
    Load(Load),
    Unary(Unary),
    Binary(Binary),
    Select,
    /// The sum of some terms, whose operands all vary as the result does.
    Sum(Vec<SumTerm>),
    Convert(Elem),
    /// The value `by` earlier along an axis that the tile holds whole; the second operand where there is none.
    Shift {
        axis: usize,
        by: i64,
    },
    /// The value at one index of an axis that the tile holds whole.
    Pick {
        axis: usize,
        index: usize,
    },
    /// The value at one position of the streamed axis, kept when a tile holds that position.
    Capture {
        axis: usize,
        position: usize,
    },
    /// True at the indices of an axis that the operand, a list of integers, names.
    Starts {
        axis: usize,
    },
    /// A product of matrices.
    Product(Box<Product>),
    Combine(Box<Combine>),
}

/// A comparison of the index along an axis with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guard {
    pub(super) axis: usize,
    pub(super) offset: i64,
    /// Whether it is true from the bound on; else below it.
    pub(super) is_from: bool,
    pub(super) bound: i64,
}

impl Guard {
    /// Its answer at an index.
    #[inline(always)]
    pub(super) fn at(&self, index: i64) -> bool {
        (index.saturating_add(self.offset) >= self.bound) == self.is_from
    }
}

/// A term of a sum: an operand, or the product of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SumTerm {
    pub(super) is_subtracted: bool,
    pub(super) factor: usize,
    pub(super) times: Option<usize>,
}

/// A block of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    /// Which of the stage's sources.
    pub(super) source: usize,
    /// The element at which all indices are 0.
    pub(super) base: i64,
    pub(super) terms: Vec<Term>,
    /// Axes along which the instruction's operands, in order, say the index.
    pub(super) gathered: Vec<Gathered>,
    /// Appears where there is no such element.
    pub(super) fill: Literal,
}

/// An axis of a tensor along which another register says where to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gathered {
    /// The size of the axis.
    pub(super) size: usize,
    /// How far apart neighbours lie.
    pub(super) stride: i64,
    /// How many elements before the index.
    pub(super) by: i64,
}

/// The distance that an axis of a tile adds to the place of an element in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Term {
    /// The axis of the stage.
    pub(super) axis: usize,
    /// How far apart neighbours lie.
    pub(super) stride: i64,
    /// How much later than in memory a value appears.
    pub(super) by: i64,
}

/// A scan or a reduction.
#[derive(Debug)]
pub(super) struct Combine {
    /// The axis of the stage that is swept.
    pub(super) axis: usize,
    pub(super) reverse: bool,
    /// Whether the tile is a part of the axis and the states live on from tile to tile.
    pub(super) is_streamed: bool,
    /// For results.
    pub(super) results: Arc<Combination>,
    /// For totals of chunks.
    pub(super) totals: Arc<Combination>,
    /// The elements of the kernels of `results` (`scan`, then `total`), then of those of `totals`.
    pub(super) elements: [Vec<Reg>; 2],
    /// Over which axes each field's state varies.
    pub(super) dims: Vec<u64>,
    /// The states; those of a reduction are its results.
    pub(super) states: Vec<Option<Reg>>,
    /// The initial state, if it is not the identity.
    pub(super) init: Vec<Reg>,
    /// The result of each field of a scan that something needs.
    pub(super) outputs: Vec<Option<Reg>>,
    /// How many streamed scans lie between this one and the tensors, itself included; 0 for others.
    pub(super) level: usize,
    /// Whether at borders the first element is combined by itself and what follows it with the result.
    pub(super) opens: bool,
    /// The elements of a sum or softmax merge that is computed by products of matrices.
    pub(super) products: Option<Products>,
}

/// A matrix of a product: a block that varies over some axes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) of: MatrixSource,
    pub(super) dims: u64,
    /// A truth value by element: where it is false the element is zero, and counts as nothing whatever it is multiplied with.
    pub(super) mask: Option<Reg>,
}

/// Where the elements of a matrix lie.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MatrixSource {
    Register(Reg),
    /// In a tensor, at any strides.
    Tensor(Load),
}

/// Σ over an axis of left·right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    /// The axis of the stage that is summed.
    pub(super) axis: usize,
    pub(super) left: Matrix,
    pub(super) right: Matrix,
}

/// The fields of a sum or a softmax merge by products of matrices.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Products {
    pub(super) gauge: Option<Gauge>,
    pub(super) payloads: Vec<Payload>,
}

/// The base of a softmax merge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gauge {
    pub(super) field: usize,
    pub(super) score: Reg,
    /// A weight is 2^(rate·(score − maximum)).
    pub(super) rate: f64,
}

/// A field of a sum or a softmax merge.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Payload {
    pub(super) field: usize,
    /// The left matrix; in a merge what weights are multiplied with, if anything.
    pub(super) left: Option<Matrix>,
    /// In a merge a truth value by pair: where it is false the pair counts as nothing.
    pub(super) seen: Option<Reg>,
    /// The right matrix; none for a sum of weights.
    pub(super) right: Option<Matrix>,
}

impl Matrix {
    /// The registers it reads.
    pub(super) fn registers(&self) -> impl Iterator<Item = Reg> {
        let elements = match &self.of {
            MatrixSource::Register(register) => Some(*register),
            MatrixSource::Tensor(_) => None,
        };
        elements.into_iter().chain(self.mask)
    }
}

impl Products {
    /// The registers it reads.
    pub(super) fn registers(&self) -> impl Iterator<Item = Reg> {
        let matrices = self.payloads.iter().flat_map(|payload| payload.left.iter().chain(&payload.right));
        let seen = self.payloads.iter().filter_map(|payload| payload.seen);
        self.gauge.map(|gauge| gauge.score).into_iter().chain(matrices.flat_map(Matrix::registers)).chain(seen)
    }
}

impl Instruction {
    /// The registers it writes.
    pub(super) fn writes(&self) -> Vec<Reg> {
        match &self.op {
            TileOp::Combine(combine) => combine.states.iter().chain(&combine.outputs).flatten().copied().collect(),
            _ => self.result.into_iter().collect(),
        }
    }
}

impl Combine {
    /// Whether a sweep gives totals only.
    pub(super) fn gives_totals(&self, sweeping: Sweeping) -> bool {
        self.is_streamed && sweeping == Sweeping::Totals { level: self.level }
    }
}

impl Code {
    /// How many elements a register has in a tile.
    pub(super) fn len(&self, register: Reg, extents: &[usize]) -> usize {
        size(self.registers[register.0].dims, extents)
    }
}

/// The product of some extents.
pub(super) fn size(dims: u64, extents: &[usize]) -> usize {
    (0..extents.len()).filter(|k| dims >> k & 1 == 1).map(|k| extents[k]).product()
}

/// The strides of something dense over some axes; 0 for the others.
pub(super) fn strides(dims: u64, extents: &[usize]) -> PerAxis<isize> {
    let varies: PerAxis<bool> = (0..extents.len()).map(|k| dims >> k & 1 == 1).collect();
    super::sweep::dense(extents, &varies)
}
