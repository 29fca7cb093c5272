//! Numbers of columns: parameters that have one element for each column, as the log-sum-exp of a query has in the gradient of
//! the keys.
//!
//! They come with the tiles, through a ring of as many stages: read at every pair from global memory they would cost more than
//! the products.

use crate::abi::{Tensor, elem};
use crate::block::copy::Source;
use crate::build::{Builder, zero};
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::tile::{Memory, Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet};

/// A parameter's elements for the columns of a tile, of every stage of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector {
    /// The parameter.
    pub param: u32,
    /// The array of all stages.
    pub array: SharedId,
    columns: u32,
}

/// The columns that are copied into a stage.
#[derive(Clone, Copy)]
struct Columns {
    /// The offset of the first column's element, and the distance to the next, `i64`.
    origin: Operand,
    stride: Operand,
    /// How many columns there are from the first one on, `i32`.
    left: Operand,
    /// The index at which the stage begins.
    start: Operand,
}

impl Vector {
    /// The parameters that a stage's vectors are of: those of 32-bit elements, which can be copied one by one.
    pub(super) fn params(stage: &Stage, form: &Pairwise) -> Vec<u32> {
        let inner: AxisSet = form.inner.iter().copied().collect();
        let has_columns = |axes: &[Axis]| {
            let axes: AxisSet = axes.iter().copied().collect();
            axes.contains(form.column) && !axes.contains(form.row) && axes.minus(inner) == axes
        };
        let params = stage.program.params.iter().zip(0..);
        let params = params.filter(|(p, _)| has_columns(&p.axes) && p.elem.bytes() == Some(4));
        params.map(|(_, param)| param).collect()
    }

    /// Declares the arrays of a stage's vectors.
    pub(super) fn all(b: &mut Builder, stage: &Stage, form: &Pairwise, columns: u32, stages: u32) -> Vec<Vector> {
        let declare = |param: u32| {
            let kind = SharedKind::Elem(elem(stage, Tensor::Param(param)));
            let name = &stage.program.params[param as usize].name;
            let array = b.shared(format!("{name}_numbers"), kind, columns * stages);
            Vector { param, array, columns }
        };
        Vector::params(stage, form).into_iter().map(declare).collect()
    }

    /// Starts the copies of the columns from `first` (`i32`) on into a stage; the arrival of the next tile counts for them, too.
    pub(super) fn fill(
        &self,
        b: &mut Builder,
        source: &Source,
        column: Axis,
        origin: Operand,
        first: Operand,
        stage: Operand,
    ) {
        let start = b.mul(stage, self.columns);
        let size = b.convert(Ty::I32, source.args.size(column));
        let left = b.sub(size, first);
        let stride = source.args.stride(Tensor::Param(self.param), column);
        let first = b.convert(Ty::I64, first);
        let of_first = b.mul(first, stride);
        let origin = b.add(origin, of_first);
        let columns = Columns { origin, stride, left, start };
        for from in (0..self.columns).step_by(source.threads as usize) {
            let number = b.add(source.thread, from);
            if self.columns - from < source.threads {
                let inside = b.lt(number, self.columns);
                b.if_(inside, |b| self.copy(b, source, columns, number));
            } else {
                self.copy(b, source, columns, number);
            }
        }
    }

    /// Starts the copy of one column.
    fn copy(&self, b: &mut Builder, source: &Source, columns: Columns, number: Operand) {
        let Columns { origin, stride, left, start } = columns;
        let tensor = Tensor::Param(self.param);
        let exists = b.lt(number, left);
        let number_64 = b.convert(Ty::I64, number);
        let offset = b.mul(number_64, stride);
        let (from, from_index) = (source.args.pointer(tensor), b.add(origin, offset));
        let to_index = b.add(start, number);
        if source.vector > 1 {
            b.push(Stmt::CopyAsync { to: self.array, to_index, from, from_index, elements: 1, guard: Some(exists) });
        } else {
            let nothing = zero(b.elem(Memory::Global(from)).value());
            let one = b.load(Memory::Global(from), from_index, 1, Some(exists), nothing);
            b.store(Memory::Shared(self.array), to_index, &one, None);
        }
    }
}
