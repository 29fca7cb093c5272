//! Outputs by way of shared memory: a warp has neighbouring times of a place of the width, and writes neighbouring places.

use super::{DeltaKernel, ELEMENTS, ROWS};
use crate::abi::{Tensor, axes, elem};
use crate::block::matmul::COLUMNS;
use crate::block::pair::Values;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

/// Neighbouring places that a lane stores.
const NEIGHBOURS: u32 = 8;

/// An output that goes through shared memory.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct Staged {
    /// The number of the output.
    pub output: usize,
    /// An element for a chunk's times and all places of the width.
    array: SharedId,
    /// Elements from one time to the next: neighbouring rows meet different banks.
    pitch: u32,
    /// Elements of an access to the output.
    access: u32,
}

impl Staged {
    /// The only output with time, where its rows are stored eight elements at once.
    pub(super) fn declare(b: &mut Builder, kernel: &DeltaKernel<'_>) -> Option<Staged> {
        let stage = kernel.stage;
        let mut outputs = (0..stage.program.outputs.len()).filter(|output| !stage.is_final(*output));
        let output = outputs.next().filter(|_| outputs.next().is_none())?;
        let is_short = elem(stage, Tensor::Output(output as u32)).bytes() == Some(2);
        let is_whole = kernel.schedule.vector == NEIGHBOURS && !kernel.schedule.padded;
        let is_meant = is_short && is_whole && access(kernel, output) == NEIGHBOURS;
        is_meant.then(|| Staged::of_output(b, kernel, output))
    }

    /// An output with time and the width.
    pub(in crate::schedules) fn of_output(b: &mut Builder, kernel: &DeltaKernel<'_>, output: usize) -> Staged {
        let kind = SharedKind::Elem(elem(kernel.stage, Tensor::Output(output as u32)));
        let pitch = kernel.schedule.places + NEIGHBOURS;
        Staged { output, array: b.shared("staged", kind, ROWS * pitch), pitch, access: access(kernel, output) }
    }

    /// Writes the thread's element of a block of eight times.
    pub(in crate::schedules) fn put(
        self,
        b: &mut Builder,
        kernel: &DeltaKernel<'_>,
        block: u32,
        element: usize,
        value: Operand,
    ) {
        let (h, c) = ELEMENTS[element];
        let (row, column) = (kernel.first_row(b), kernel.fragment.column(b));
        let time = b.add(column, Operand::i32((block * COLUMNS) as i32 + c as i32));
        let index = b.mul(time, self.pitch);
        let index = b.add(index, row);
        let index = b.add(index, Operand::i32((h as u32 * COLUMNS) as i32));
        b.store(Memory::Shared(self.array), index, &[value], None);
    }

    /// Stores the warp's places at a chunk's times, from a first time on.
    pub(in crate::schedules) fn store(
        self,
        b: &mut Builder,
        kernel: &DeltaKernel<'_>,
        values: &Values,
        first: Operand,
    ) {
        b.push(Stmt::SyncWarp);
        let pieces = ROWS / NEIGHBOURS;
        let tensor = Tensor::Output(self.output as u32);
        let [line, half] = b.div_rem(kernel.thread.lane, pieces);
        let of_warp = b.mul(kernel.thread.warp, ROWS);
        let of_half = b.mul(half, NEIGHBOURS);
        let place = b.add(of_warp, of_half);
        let index = b.mul(line, self.pitch);
        let index = b.add(index, place);
        let time = b.add(first, line);
        let time = kernel.index_along(b, time, kernel.form.time);
        for by in (0..NEIGHBOURS).step_by(self.access as usize) {
            let place = b.add(place, by);
            let width = kernel.index_along(b, place, kernel.form.width);
            let index = b.add(index, by);
            let elements = b.load(Memory::Shared(self.array), index, self.access, None, zero(Ty::F32));
            let mut indices = values.outer_indices().to_vec();
            indices.extend([(kernel.form.time, time.at), (kernel.form.width, width.at)]);
            let offset = kernel.args.offset(b, tensor, &indices);
            // A tensor of which whole accesses are taken has no access in part.
            let is_padded = kernel.schedule.padded;
            let exists = if is_padded { b.and(time.exists, width.exists) } else { time.exists };
            b.store(Memory::Global(kernel.args.pointer(tensor)), offset, &elements, Some(exists));
        }
        b.push(Stmt::SyncWarp);
    }
}

/// The elements of an access to an output: as many as accesses to tensors have, but no more than 16 bytes, where its rows are contiguous along the
/// width.
fn access(kernel: &DeltaKernel<'_>, output: usize) -> u32 {
    let tensor = Tensor::Output(output as u32);
    let most = elem(kernel.stage, tensor).bytes().map_or(1, |bytes| 16 / bytes as u32);
    let own = axes(kernel.stage, tensor);
    let unit: Option<&Axis> = own.iter().rev().find(|axis| [kernel.form.depth, kernel.form.width].contains(axis));
    if unit == Some(&kernel.form.width) && !own.contains(&kernel.form.depth) {
        kernel.schedule.vector.min(most)
    } else {
        1
    }
}
