//! Outputs by way of shared memory: a warp has neighbouring times of a place of the width, and writes neighbouring places.

use super::{DeltaKernel, ELEMENTS, ROWS};
use crate::abi::{Tensor, axes, elem};
use crate::block::matmul::COLUMNS;
use crate::block::pair::Values;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Elements of an access.
const ACCESS: u32 = 8;

/// An output that goes through shared memory.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct Staged {
    /// The number of the output.
    pub output: usize,
    /// An element for a chunk's times and all places of the width.
    array: SharedId,
    /// Elements from one time to the next: neighbouring rows meet different banks.
    pitch: u32,
}

impl Staged {
    /// The only output with time.
    pub(super) fn declare(b: &mut Builder, kernel: &DeltaKernel<'_>) -> Option<Staged> {
        let stage = kernel.stage;
        let mut outputs = (0..stage.program.outputs.len()).filter(|output| !stage.is_final(*output));
        let output = outputs.next().filter(|_| outputs.next().is_none())?;
        Staged::of_output(b, kernel, output)
    }

    /// An output with time and the width, where accesses are vectors along the width.
    pub(in crate::schedules) fn of_output(b: &mut Builder, kernel: &DeltaKernel<'_>, output: usize) -> Option<Staged> {
        let stage = kernel.stage;
        let tensor = Tensor::Output(output as u32);
        let own = axes(stage, tensor);
        let unit: Option<&Axis> = own.iter().rev().find(|axis| [kernel.form.depth, kernel.form.width].contains(axis));
        let is_meant = unit == Some(&kernel.form.width) && elem(stage, tensor).bytes() == Some(2);
        let is_wide = kernel.schedule.vector == ACCESS && !kernel.schedule.padded;
        (is_meant && is_wide && !own.contains(&kernel.form.depth)).then(|| {
            let kind = SharedKind::Elem(elem(stage, tensor));
            let pitch = kernel.schedule.places + ACCESS;
            Staged { output, array: b.shared("staged", kind, ROWS * pitch), pitch }
        })
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
        let pieces = ROWS / ACCESS;
        let tensor = Tensor::Output(self.output as u32);
        let half = b.binary(Binary::Rem, kernel.thread.lane, Operand::i32(pieces as i32));
        let line = b.binary(Binary::Div, kernel.thread.lane, Operand::i32(pieces as i32));
        let of_warp = b.mul(kernel.thread.warp, Operand::i32(ROWS as i32));
        let of_half = b.mul(half, Operand::i32(ACCESS as i32));
        let place = b.add(of_warp, of_half);
        let width = kernel.index_along(b, place, kernel.form.width);
        let index = b.mul(line, self.pitch);
        let index = b.add(index, place);
        let elements = b.load(Memory::Shared(self.array), index, ACCESS, None, zero(Ty::F32));
        let time = b.add(first, line);
        let time = kernel.index_along(b, time, kernel.form.time);
        let mut indices = values.outer_indices().to_vec();
        indices.extend([(kernel.form.time, time.at), (kernel.form.width, width.at)]);
        let offset = kernel.args.offset(b, tensor, &indices);
        b.store(Memory::Global(kernel.args.pointer(tensor)), offset, &elements, Some(time.exists));
        b.push(Stmt::SyncWarp);
    }
}
