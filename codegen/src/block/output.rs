//! Stores of outputs whose values an evaluator of pairs knows: one element, or two neighbours.

use super::args::Args;
use super::pair::{Coordinates, Values};
use crate::abi::{Tensor, axes, elem};
use crate::build::Builder;
use crate::stage::Stage;
use crate::tile::{Memory, Operand, Shuffle};
use oplus_dsl::ir::{Axis, AxisSet, Binary};

/// An output of a stage that is stored two by two.
pub(crate) struct StoredOutput<'s> {
    pub stage: &'s Stage,
    pub args: &'s Args,
    pub output: usize,
    /// The axis along which the two are neighbours.
    pub unit: Axis,
    /// The axes along which tensors that lack that axis have stride 1.
    pub other: AxisSet,
    /// Elements per access.
    pub vector: u32,
}

/// Stores an output at two places that are neighbours along its unit axis.
pub(crate) fn store_two(b: &mut Builder, values: &mut Values, stored: &StoredOutput, coordinates: [Coordinates; 2]) {
    let StoredOutput { stage, args, output, unit, other, vector } = *stored;
    let tensor = Tensor::Output(output as u32);
    let value = stage.program.outputs[output].value;
    let memory = Memory::Global(args.pointer(tensor));
    let places = coordinates.map(|coordinates| values.indices(b, coordinates));
    let two = coordinates.map(|coordinates| values.value(b, value, coordinates));
    let mut offset = |k: usize| args.offset(b, tensor, &places[k].0);
    let offsets = [offset(0), offset(1)];
    let is_unit = |axis: &&Axis| **axis == unit || other.contains(**axis);
    if vector > 1 && axes(stage, tensor).iter().rev().find(is_unit) == Some(&unit) {
        b.store(memory, offsets[0], &two, Some(places[0].1));
    } else {
        (0..2).for_each(|k| b.store(memory, offsets[k], &two[k..=k], Some(places[k].1)));
    }
}

/// Stores an output at two places that are neighbours along its unit axis, in each of two blocks of eight. Where accesses may have four
/// elements, lanes `member` change numbers with the next ones: an even lane stores four neighbours in the first block, an odd one in the
/// second. All of the blocks' places exist in a row that does.
pub(crate) fn store_two_blocks(
    b: &mut Builder,
    values: &mut Values,
    stored: &StoredOutput,
    blocks: [[Coordinates; 2]; 2],
    member: Operand,
) {
    let StoredOutput { stage, args, output, unit, other, vector } = *stored;
    let tensor = Tensor::Output(output as u32);
    let is_unit = |axis: &&Axis| **axis == unit || other.contains(**axis);
    let is_short = elem(stage, tensor).bytes().is_some_and(|bytes| bytes < 4);
    if vector < 4 || !is_short || axes(stage, tensor).iter().rev().find(is_unit) != Some(&unit) {
        return blocks.into_iter().for_each(|two| store_two(b, values, stored, two));
    }
    let value = stage.program.outputs[output].value;
    let odd = b.binary(Binary::And, member, 1);
    let is_odd = b.ne(odd, 0);
    let twos = blocks.map(|two| two.map(|coordinates| values.value(b, value, coordinates)));
    let places = blocks.map(|two| {
        let (indices, exists) = values.indices(b, two[0]);
        (args.offset(b, tensor, &indices), exists)
    });
    let four = [0, 1].map(|c: usize| {
        let (first, second) = (twos[0][c], twos[1][c]);
        let given = b.select(is_odd, first, second);
        let taken = b.shuffle(Shuffle::Xor, given, Operand::i32(1));
        [b.select(is_odd, taken, first), b.select(is_odd, second, taken)]
    });
    let before = b.sub(places[1].0, 2);
    let at = b.select(is_odd, before, places[0].0);
    let exists = b.select(is_odd, places[1].1, places[0].1);
    let four = [four[0][0], four[1][0], four[0][1], four[1][1]];
    b.store(Memory::Global(args.pointer(tensor)), at, &four, Some(exists));
}

/// Stores an output's element at coordinates, where the tensor has it.
pub(crate) fn store_one(
    b: &mut Builder,
    values: &mut Values,
    stage: &Stage,
    args: &Args,
    output: usize,
    coordinates: Coordinates,
) {
    let tensor = Tensor::Output(output as u32);
    let (indices, exists) = values.indices(b, coordinates);
    let value = values.value(b, stage.program.outputs[output].value, coordinates);
    let offset = args.offset(b, tensor, &indices);
    b.store(Memory::Global(args.pointer(tensor)), offset, &[value], Some(exists));
}
