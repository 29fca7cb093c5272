//! The kernel's parameters, declared in the order of the ABI and found by what they stand for.

use super::sequence::{Offsets, Sequence, SequenceTile};
use crate::abi::{Role, Slot, Tensor, axes, elem, tensors};
use crate::build::{Builder, zero};
use crate::stage::{Sequences, Stage, View};
use crate::tile::{Memory, Operand, ParamId, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary};

/// The numbers of a sequence that [may be read again](Args::with_numbers_of_sequence).
pub(crate) const NUMBERS_OF_SEQUENCE: usize = 3;

/// The parameters of a stage's kernel.
#[derive(Clone)]
pub struct Args {
    /// Of every tensor, in the order of the ABI.
    pointers: Vec<ParamId>,
    /// For every tensor, its axes and the stride along each; `None` stands for 1.
    strides: Vec<Vec<(Axis, Option<Operand>)>>,
    /// The number of tensors that are parameters of the stage; the others are its outputs.
    inputs: usize,
    sizes: Vec<Operand>,
    outer: AxisSet,
    views: Vec<Vec<View>>,
    /// Scratch memory through which kernels of one stage pass values on.
    pub scratch: Vec<ParamId>,
    /// The tiles of a segment of time, `i64`.
    pub segment_tiles: Option<Operand>,
    /// Which pieces of the rows there are beside the launch's own, `i64`.
    pub piece: Option<Operand>,
    /// Message words between blocks.
    pub messages: Option<ParamId>,
    /// Control words of the launch.
    pub control: Option<ParamId>,
    /// The block's sequence, where it has one of several.
    sequence: Option<Sequence>,
}

impl Args {
    /// Declares the parameters of a stage's kernel, in the order of its ABI, and reads the scalars.
    pub fn declare(b: &mut Builder, stage: &Stage, slots: Vec<Slot>) -> Args {
        let (mut pointers, mut sizes, inputs) = (vec![], vec![], stage.program.params.len());
        let mut strides: Vec<Vec<_>> =
            tensors(stage).map(|t| axes(stage, t).iter().map(|axis| (*axis, None)).collect()).collect();
        let (mut scratch, mut segment_tiles, mut piece, mut messages, mut control) = (vec![], None, None, None, None);
        for slot in slots {
            let id = b.param(slot.param.name, slot.param.kind);
            match slot.role {
                Role::Pointer(_) => pointers.push(id),
                Role::Size(_) => sizes.push(b.scalar(id)),
                Role::Stride(tensor, axis) => {
                    let stride = b.scalar(id);
                    let own = strides[place(inputs, tensor)].iter_mut().filter(|(along, _)| *along == axis);
                    own.for_each(|(_, known)| *known = Some(stride));
                }
                Role::Scratch(_) => scratch.push(id),
                Role::SegmentTiles => segment_tiles = Some(b.scalar(id)),
                Role::Piece => piece = Some(b.scalar(id)),
                Role::Messages => messages = Some(id),
                Role::Control => control = Some(id),
            }
        }
        let (outer, views) = (stage.outer_axes(), stage.views.clone());
        let sequence = None;
        Args {
            pointers,
            strides,
            inputs,
            sizes,
            outer,
            views,
            scratch,
            segment_tiles,
            piece,
            messages,
            control,
            sequence,
        }
    }

    /// A tensor's pointer.
    pub fn pointer(&self, tensor: Tensor) -> ParamId {
        self.pointers[place(self.inputs, tensor)]
    }

    /// A tensor's memory.
    pub fn memory(&self, tensor: Tensor) -> Memory {
        Memory::Global(self.pointer(tensor))
    }

    /// The size of an axis, `i64`; of time, the times of the block's sequence.
    pub fn size(&self, axis: Axis) -> Operand {
        let sequence = self.sequence.filter(|sequence| sequence.time == axis);
        sequence.map_or(self.sizes[axis.0 as usize], |sequence| sequence.len)
    }

    /// The product of the sizes of some axes, `i64`.
    pub fn rows(&self, b: &mut Builder, axes: AxisSet) -> Operand {
        axes.iter().fold(Operand::i64(1), |rows, axis| b.mul(rows, self.size(axis)))
    }

    /// The index along each outer axis of row number `row` (`i64`), the last axis fastest.
    pub fn row_indices(&self, b: &mut Builder, row: Operand) -> Vec<(Axis, Operand)> {
        self.indices(b, row, self.outer)
    }

    /// The index along each of some axes of point number `number` (`i64` or `i32`) of their product, the last axis fastest.
    pub fn indices(&self, b: &mut Builder, number: Operand, axes: AxisSet) -> Vec<(Axis, Operand)> {
        let axes: Vec<Axis> = axes.iter().collect();
        let (mut rest, mut indices) = (number, vec![]);
        for (i, axis) in axes.iter().enumerate().rev() {
            if i == 0 {
                indices.push((*axis, rest));
                break;
            }
            let size = b.convert(b.ty(number), self.size(*axis));
            indices.push((*axis, b.binary(Binary::Rem, rest, size)));
            rest = b.binary(Binary::Div, rest, size);
        }
        indices
    }

    /// Looks up the block's sequence in the list of offsets, where a block has one of several sequences. From here on times are counted from
    /// the sequence's first one, and addresses begin there. Its index in `outer`, which counts two sequences more than the program has, is
    /// replaced by its index among the program's.
    pub(crate) fn enter_sequence(&mut self, b: &mut Builder, stage: &Stage, outer: &mut [(Axis, Operand)]) {
        let Some(Sequences { time, axis, list, offsets }) = stage.sequences() else { return };
        let Some((_, number)) = outer.iter_mut().find(|(own, _)| *own == axis) else { return };
        let offsets = self.offsets(stage, offsets, list);
        let sequence = offsets.sequence(b, *number, self.size(axis), (time, self.size(time)));
        *number = sequence.number;
        self.sequence = Some(sequence);
    }

    fn offsets(&self, stage: &Stage, offsets: u32, list: Axis) -> Offsets {
        let tensor = Tensor::Param(offsets);
        let (memory, stride) = (self.memory(tensor), self.stride(tensor, list));
        Offsets { memory, stride, zero: zero(elem(stage, tensor).value()) }
    }

    /// The block's tile, of so many times in so many parts, and [its sequence](Args::enter_sequence), where a block has a part of a tile of
    /// one of several sequences. Blocks are numbered by part, then by the tiles of all sequences, then by the other outer indices.
    pub(crate) fn enter_tile(
        &mut self,
        b: &mut Builder,
        stage: &Stage,
        axes: AxisSet,
        (times, parts): (u32, u32),
    ) -> Option<SequenceTile> {
        let Sequences { time, axis, list, offsets } = stage.sequences()?;
        let block = b.special(Special::Block);
        let block = b.convert(Ty::I64, block);
        let count = self.tiles_of_sequences(b, time, axis, times);
        let [point, part] = b.div_rem(block, i64::from(parts));
        let [row, place] = b.div_rem(point, count);
        let offsets = self.offsets(stage, offsets, list);
        let order = offsets.of_tile(b, place, self.size(axis), (self.size(time), times));
        let mut outer = self.indices(b, row, axes.without(axis));
        outer.push((axis, order));
        self.enter_sequence(b, stage, &mut outer);
        let sequence = self.sequence?;
        let before = sequence.first_tile(b, times);
        let number = b.sub(place, before);
        let first = b.mul(number, i64::from(times));
        let of_part = b.mul(part, i64::from(times / parts));
        let first = b.add(first, of_part);
        let exists = b.lt(first, sequence.len);
        Some(SequenceTile { outer, row, place, count, part, first, exists })
    }

    /// The number of places for tiles of so many times of all sequences.
    fn tiles_of_sequences(&self, b: &mut Builder, time: Axis, axis: Axis, times: u32) -> Operand {
        let whole = b.binary(Binary::Div, self.sizes[time.0 as usize], i64::from(times));
        b.add(whole, self.sizes[axis.0 as usize])
    }

    /// The number of the first tile of the block's sequence among the tiles that are stored, where a block has one of several sequences. The
    /// tiles of the rows before, of which there are `row`, come first.
    pub(crate) fn first_tile(&self, b: &mut Builder, stage: &Stage, row: Operand, times: u32) -> Option<Operand> {
        let (Sequences { time, axis, .. }, sequence) = (stage.sequences()?, self.sequence?);
        let count = self.tiles_of_sequences(b, time, axis, times);
        let before = b.mul(row, count);
        let first = sequence.first_tile(b, times);
        Some(b.add(before, first))
    }

    /// The number of a point of some axes, the last axis fastest.
    pub(crate) fn number_of(&self, b: &mut Builder, axes: AxisSet, indices: &[(Axis, Operand)]) -> Operand {
        axes.iter().fold(Operand::i64(0), |number, axis| {
            let above = b.mul(number, self.size(axis));
            b.add(above, index_of(indices, axis))
        })
    }

    /// The numbers of the block's sequence that addresses and conditions read, `i64`.
    pub(crate) fn numbers_of_sequence(&self, b: &mut Builder) -> Option<[Operand; NUMBERS_OF_SEQUENCE]> {
        let Sequence { first, len, has_states, .. } = self.sequence?;
        Some([first, len, b.select(has_states, Operand::i64(1), Operand::i64(0))])
    }

    /// Replaces the [numbers of the block's sequence](Self::numbers_of_sequence), such as by those that were read from shared memory.
    pub(crate) fn with_numbers_of_sequence(
        &self,
        b: &mut Builder,
        [first, len, has_states]: [Operand; NUMBERS_OF_SEQUENCE],
    ) -> Args {
        let has_states = b.ne(has_states, 0);
        let sequence = self.sequence.map(|sequence| Sequence { first, len, has_states, ..sequence });
        Args { sequence, ..self.clone() }
    }

    /// Whether a condition holds, and the block has a first and a last state: one of several sequences may lack them.
    pub(crate) fn with_states(&self, b: &mut Builder, condition: Operand) -> Operand {
        self.sequence.map_or(condition, |sequence| b.and(condition, sequence.has_states))
    }

    /// The first state, which is 0 where the block's sequence has none of its own.
    pub(crate) fn first_or_nothing(&self, b: &mut Builder, first: Operand) -> Operand {
        self.sequence.map_or(first, |sequence| b.select(sequence.has_states, first, zero(Ty::F32)))
    }

    /// A tensor's stride along one of its axes, `i64`; 0 for an axis that it lacks.
    pub fn stride(&self, tensor: Tensor, axis: Axis) -> Operand {
        let found = self.strides[place(self.inputs, tensor)].iter().find(|(a, _)| *a == axis);
        found.map_or(Operand::i64(0), |(_, stride)| stride.unwrap_or(Operand::i64(1)))
    }

    /// The strides of the parameters that lack some axes, each where it is kept: they may be read from elsewhere.
    pub(crate) fn strides_without(&mut self, axes: AxisSet) -> impl Iterator<Item = &mut Operand> {
        let params = self.strides[..self.inputs].iter_mut();
        let without = params.filter(move |own| !own.iter().any(|(axis, _)| axes.contains(*axis)));
        without.flat_map(|own| own.iter_mut().filter_map(|(_, stride)| stride.as_mut()))
    }

    /// The first time of the block's sequence and the number of its times, each where it is kept, where a block has one of several.
    pub(crate) fn bounds_of_sequence(&mut self) -> Option<[&mut Operand; 2]> {
        self.sequence.as_mut().map(|sequence| [&mut sequence.first, &mut sequence.len])
    }

    /// The offset of a tensor's element from its first, `i64`; axes without an index count as 0, and times from the first one of the block's
    /// sequence on.
    pub fn offset(&self, b: &mut Builder, tensor: Tensor, indices: &[(Axis, Operand)]) -> Operand {
        let mut sum = Operand::i64(0);
        for (axis, stride) in &self.strides[place(self.inputs, tensor)] {
            let index = indices.iter().find(|(a, _)| a == axis).map(|(_, index)| self.viewed(b, tensor, *axis, *index));
            let first = self.sequence.filter(|sequence| sequence.time == *axis).map(|sequence| sequence.first);
            let index = match (index, first) {
                (Some(index), Some(first)) => Some(b.add(first, index)),
                (index, first) => index.or(first),
            };
            if let Some(index) = index {
                let step = stride.map_or(index, |stride| b.mul(index, stride));
                sum = b.add(sum, step);
            }
        }
        sum
    }

    /// The tensor's index for an index of the stage: displaced where the parameter is a view.
    fn viewed(&self, b: &mut Builder, tensor: Tensor, axis: Axis, index: Operand) -> Operand {
        let Tensor::Param(param) = tensor else { return index };
        match self.views[param as usize].iter().find(|v| v.axis == axis) {
            None => index,
            Some(view) if view.by > 0 => {
                let moved = b.sub(index, view.by);
                b.binary(Binary::Max, moved, 0)
            }
            Some(view) => {
                let moved = b.sub(index, view.by);
                let last = b.sub(self.size(axis), 1);
                b.binary(Binary::Min, moved, last)
            }
        }
    }
}

/// The index along an axis, from those along some axes; 0 where it is not among them.
pub fn index_of(indices: &[(Axis, Operand)], axis: Axis) -> Operand {
    indices.iter().find(|(a, _)| *a == axis).map_or(Operand::i64(0), |(_, index)| *index)
}

/// The place of a tensor among all of a stage with so many parameters.
fn place(inputs: usize, tensor: Tensor) -> usize {
    match tensor {
        Tensor::Param(i) => i as usize,
        Tensor::Output(i) => inputs + i as usize,
    }
}
