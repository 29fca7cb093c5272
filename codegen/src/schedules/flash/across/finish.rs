//! The second kernel: an output of the sums over rows. A block has a tile of columns.

use super::super::visible::bound;
use super::super::{Flash, outer_axes};
use super::sums::RowSums;
use super::{ACROSS, SUMMING};
use crate::abi::{Tensor, axes};
use crate::block::args::Args;
use crate::block::pair::{Coordinates, Index, Values};
use crate::build::{Builder, zero};
use crate::schedules::Strategy;
use crate::stage::Stage;
use crate::stage::kind::{Across, Pairwise};
use crate::tile::{Kernel, Memory, Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary};

/// The number by which the evaluator knows row 0, beside the block's own.
const ROW_ZERO: u32 = 0;

/// The tile kernel.
pub(in super::super) fn finish(stage: &Stage, schedule: &Flash, symbol: &str) -> Kernel {
    let mut b = Builder::new(symbol, SUMMING);
    if let Ok((form, across)) = stage.kind().across() {
        let args = Args::declare(&mut b, stage, schedule.abi(stage));
        Finish { stage, form, across, schedule, args }.body(&mut b);
    }
    b.finish()
}

struct Finish<'s> {
    stage: &'s Stage,
    form: &'s Pairwise,
    across: &'s Across,
    schedule: &'s Flash,
    args: Args,
}

/// One of the thread's two columns.
#[derive(Clone, Copy)]
struct OwnColumn {
    /// Which of the two it is.
    half: u32,
    index: Index,
    /// Whether it exists and any row sees it.
    seen: Operand,
}

impl Finish<'_> {
    fn body(&self, b: &mut Builder) {
        let thread = b.special(Special::Thread);
        let number = b.special(Special::Block);
        let number = b.convert(Ty::I64, number);
        let tiles = b.div_ceil(self.args.size(self.form.column), self.schedule.columns);
        let [head, tile] = b.div_rem(number, tiles);
        let (point, query) = match self.form.grouped {
            None => (head, None),
            Some(axis) => {
                let [point, query] = b.div_rem(head, self.args.size(axis));
                (point, Some((axis, query)))
            }
        };
        let mut outer = self.args.indices(b, point, outer_axes(self.form));
        outer.extend(query);
        let place = RowSums::at(b, thread, self.schedule.columns == ACROSS);
        let first = b.mul(tile, self.schedule.columns);
        let column = b.convert(Ty::I64, place.column);
        let column = b.add(first, column);
        let along = b.convert(Ty::I64, place.along);
        let seen = self.seen_by_first(b, &outer);
        let columns = [(0, 0), (1, 8)].map(|(half, further)| {
            let at = b.add(column, further);
            let exists = b.lt(at, self.args.size(self.form.column));
            let seen = self.is_seen(b, seen, at);
            OwnColumn { half, index: Index { at, exists }, seen: b.and(exists, seen) }
        });
        // A tile none of whose columns is seen by any row has no sums.
        let any = b.binary(Binary::Or, columns[0].seen, columns[1].seen);
        let sums = self.load(b, number, thread, any);
        for column in columns {
            self.store(b, &outer, column, along, &sums);
        }
    }

    /// The thread's sums, four for each 8 places.
    fn load(&self, b: &mut Builder, number: Operand, thread: Operand, guard: Operand) -> Vec<Vec<Operand>> {
        let start = b.mul(number, self.schedule.columns * self.schedule.depth);
        let own = b.mul(thread, 4);
        let own = b.convert(Ty::I64, own);
        let from = b.add(start, own);
        let memory = Memory::Global(self.args.scratch[0]);
        (0..ACROSS / 8)
            .map(|k| {
                let at = b.add(from, k * 4 * SUMMING);
                b.load(memory, at, 4, Some(guard), zero(Ty::F32))
            })
            .collect()
    }

    /// Stores the sums of one of the thread's two columns, from place `along` of the leaf's axis on.
    fn store(
        &self,
        b: &mut Builder,
        outer: &[(Axis, Operand)],
        OwnColumn { half, index, seen }: OwnColumn,
        along: Operand,
        sums: &[Vec<Operand>],
    ) {
        let Some(output) = self.output() else { return };
        let (tensor, value) = (Tensor::Output(output as u32), self.stage.program.outputs[output].value);
        let inner = self.across.leaf.1;
        // The rows of the evaluator are the columns of the stage.
        let own = [self.form.column, self.form.row];
        let mut indices = outer.to_vec();
        indices.push((self.form.column, index.at));
        let origin = self.args.offset(b, tensor, &indices);
        for (k, four) in sums.iter().enumerate() {
            let first = b.add(along, k as u32 * 8);
            let two: Vec<Operand> = (0..2)
                .map(|c| {
                    let mut values = Values::new(self.stage, &self.args, own, outer.to_vec());
                    values.set_row(half, index);
                    let at = b.add(first, c);
                    values.set_inner(c, inner, Index { at, exists: Operand::bool(true) });
                    let coordinates = Coordinates { row: Some(half), column: None, inner: Some(c) };
                    let sum = b.select(seen, four[(2 * half + c) as usize], zero(Ty::F32));
                    let sum = values.product(b, Some(sum), &self.across.outside, coordinates);
                    values.set_state(self.across.state, coordinates, sum.unwrap_or(zero(Ty::F32)));
                    values.value(b, value, coordinates)
                })
                .collect();
            let at = b.add(origin, first);
            b.store(Memory::Global(self.args.pointer(tensor)), at, &two, Some(index.exists));
        }
    }

    /// The output of the sums over rows.
    fn output(&self) -> Option<usize> {
        let outputs = 0..self.stage.program.outputs.len();
        outputs.into_iter().find(|k| !axes(self.stage, Tensor::Output(*k as u32)).contains(&self.form.row))
    }

    /// By how much the first column that row 0 sees is further, and the end of those; none where rows see all.
    fn seen_by_first(&self, b: &mut Builder, outer: &[(Axis, Operand)]) -> Option<(Operand, Operand)> {
        if self.form.limits.is_empty() {
            return None;
        }
        let mut values = Values::new(self.stage, &self.args, [self.form.row, self.form.column], outer.to_vec());
        values.set_row(ROW_ZERO, Index { at: Operand::i64(0), exists: Operand::bool(true) });
        let (mut from, mut to) = (Operand::i64(i64::MIN / 4), Operand::i64(i64::MAX / 4));
        for limit in &self.form.limits {
            let bound = bound(b, &mut values, limit, ROW_ZERO);
            if limit.above {
                to = b.binary(Binary::Min, to, bound);
            } else {
                from = b.binary(Binary::Max, from, bound);
            }
        }
        Some((from, to))
    }

    /// Whether any row sees a column: what none sees was not summed.
    fn is_seen(&self, b: &mut Builder, seen: Option<(Operand, Operand)>, column: Operand) -> Operand {
        let Some((from, to)) = seen else { return Operand::bool(true) };
        // Row n sees the columns from n + `from` up to n + `to`.
        let last = b.sub(column, from);
        let rows = b.sub(self.args.size(self.form.row), 1);
        let last = b.binary(Binary::Min, last, rows);
        let first = b.sub(column, to);
        let first = b.add(first, 1);
        let first = b.binary(Binary::Max, first, 0);
        b.ge(last, first)
    }
}

/// The axes of one tile after the other.
pub(in super::super) fn heads(form: &Pairwise) -> AxisSet {
    form.grouped.into_iter().fold(outer_axes(form), AxisSet::with)
}
