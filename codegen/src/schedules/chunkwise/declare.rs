//! The declarations of a kernel: its tiles, its other arrays and mbarriers, and the coordinates of its threads.

use super::block_constants::BlockConstants;
use super::copiers::Handover;
use super::numbers::Factored;
use super::readers::StateHandover;
use super::scale::Powers;
use super::segments::Segment;
use super::{Chunkwise, ChunkwiseKernel, KeyParts, Saved, channels, divided, parts, slices_of};
use crate::abi::{Tensor, elem};
use crate::block::args::Args;
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::block::rematerialise::Rematerialiser;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::tile::{Operand, SharedKind};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// The tiles of a kernel, as [`ChunkwiseKernel`] has them.
struct Tiles {
    queries: Option<Tile>,
    keys: Tile,
    values: Tile,
    gate: Option<Tile>,
    states: Option<Tile>,
    outputs: Option<Tile>,
    /// Whether states and weights are `tf32` in products.
    is_tf32: bool,
    /// Whether factors are in two parts.
    is_split: bool,
}

impl Tiles {
    /// Declares the tiles and their mbarriers.
    fn declare(
        b: &mut Builder,
        stage: &Stage,
        form: &MatrixRecurrence,
        schedule: &Chunkwise,
        saved: Option<Saved>,
    ) -> Tiles {
        let (times, stages) = (schedule.times(), schedule.stages);
        let mut tile = |param: u32, inner: Axis, depth: u32, heads: u32| {
            let own = elem(stage, Tensor::Param(param));
            let is_kept = schedule.unit == Unit::Warp || own == Elem::F16;
            let factor = if is_kept { own } else { Elem::Bf16 };
            let (of, shape) =
                (TileOf { param, along: form.time, inner }, TileShape { rows: times, depth, stages: stages * heads });
            Tile::declare_as(b, stage, of, shape, factor)
        };
        let queries = form.readout.as_ref().map(|readout| tile(readout.query, form.depth, schedule.depth, 1));
        let keys = tile(form.key, form.depth, schedule.depth, 1);
        let values = tile(form.value, form.width, schedule.width(), schedule.heads);
        let gate = ChunkwiseKernel::gate_of(stage, form, schedule).map(|param| {
            let of = TileOf { param, along: form.time, inner: form.width };
            Tile::declare(b, stage, of, TileShape { rows: times, depth: schedule.width(), stages: 1 })
        });
        let is_tf32 = schedule.unit == Unit::Warp && keys.elem != Elem::Bf16;
        let of_states = saved.map_or(if is_tf32 { Elem::F32 } else { keys.elem }, |saved| saved.elem);
        let of_heads = |rows, depth| TileShape { rows, depth, stages: schedule.heads };
        let shape = of_heads(schedule.width(), schedule.depth);
        let states = (!schedule.ends).then(|| Tile::bare_ring(b, "states", of_states, shape));
        let outputs = (schedule.heads > 1 && queries.is_some()).then(|| {
            let own = Tile::bare_ring(b, "outputs", keys.elem, of_heads(times, schedule.width()));
            Tile { param: form.value, ..own }
        });
        let is_split = parts::are_split(elem(stage, Tensor::Param(keys.param)), schedule);
        let mut tiles = Tiles { queries, keys, values, gate, states, outputs, is_tf32, is_split };
        if is_split {
            tiles = tiles.in_parts(b, stages);
        }
        tiles.declare_mbarriers(b, schedule);
        tiles
    }

    /// The tiles with arrays for low parts.
    fn in_parts(self, b: &mut Builder, stages: u32) -> Tiles {
        let queries = self.queries.map(|tile| tile.in_parts(b, stages));
        let [keys, values] = [self.keys, self.values].map(|tile| tile.in_parts(b, stages));
        let states = self.states.map(|tile| if tile.elem == Elem::Bf16 { tile.in_parts(b, 1) } else { tile });
        Tiles { queries, keys, values, states, ..self }
    }

    fn declare_mbarriers(&mut self, b: &mut Builder, schedule: &Chunkwise) {
        let stages = schedule.stages;
        // Two blocks of 64 KB of tiles in flight have no room for more than one array.
        let all_full = (self.is_tf32 || schedule.copiers > 0).then(|| b.shared("full", SharedKind::Mbarrier, stages));
        let full =
            |b: &mut Builder, name: &str, stages: u32| b.shared(format!("{name}_full"), SharedKind::Mbarrier, stages);
        for tile in self.queries.iter_mut().chain([&mut self.keys, &mut self.values]) {
            tile.full = all_full.unwrap_or_else(|| full(b, &tile.name, stages));
        }
        self.gate.iter_mut().for_each(|tile| tile.full = full(b, &tile.name, 1));
        // Copies of prepared parts are announced apart from values.
        if schedule.key_parts == KeyParts::Prepared {
            self.keys.full = full(b, &self.keys.name, stages);
        }
    }
}

impl<'s> ChunkwiseKernel<'s> {
    pub(crate) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s MatrixRecurrence,
        schedule: &'s Chunkwise,
        mut args: Args,
        saved: Option<Saved>,
    ) -> Self {
        let Tiles { queries, keys, values, gate, states, outputs, is_tf32, is_split } =
            Tiles::declare(b, stage, form, schedule, saved);
        let [of_sums, of_gains] = rates_len(form, schedule, keys.elem, [is_split, saved.is_some()]);
        let [sums, gains] = [("sums", of_sums), ("gains", of_gains)]
            .map(|(name, len)| b.shared(name, SharedKind::Elem(Elem::F32), len));
        let is_scaled = schedule.unit == Unit::Warpgroup && keys.elem == Elem::F16;
        let powers = is_scaled.then(|| Powers::declare(b, schedule.warps));
        let is_factored = schedule.copiers > 0 && !is_split && (is_scaled || saved.is_none() && !form.reverse);
        let factored = is_factored.then(|| Factored::declare(b, schedule.stages * schedule.heads));
        let handover =
            (schedule.copiers > 0).then(|| Handover::declare(b, schedule.stages, schedule.heads * schedule.times()));
        let state_handover = (schedule.readers > 0).then(|| StateHandover::declare(b));
        let thread = Thread::of(b);
        let fragment = FragmentPlace::of(b, thread.lane);
        let in_shared = BlockConstants::of(stage, form, schedule, keys.elem);
        let rematerialiser = Rematerialiser::declare(b, form.outer.iter().count() + 1 + in_shared.count());
        let slices = schedule.wide.then(|| slices_of(b, &args, form, schedule.width(), schedule.padded));
        let segment = Segment::of(b, &args, form.outer, slices, schedule);
        let (point, slice) = point_and_slice(b, segment.row, slices, schedule.width());
        let mut outer = args.indices(b, point, form.outer);
        args.enter_sequence(b, stage, &mut outer);
        let first_saved = match (saved, slices) {
            (None, _) => None,
            (Some(_), _) if stage.sequences().is_none() => None,
            (Some(_), slices) => first_saved(b, (&args, stage), (form, schedule), &outer, slices.zip(slice)),
        };
        let segment_carries = args.scratch[args.scratch.len() - 1];
        ChunkwiseKernel {
            stage,
            form,
            schedule,
            args,
            queries,
            keys,
            values,
            gate,
            states,
            outputs,
            head: None,
            factored,
            powers,
            is_tf32,
            sums,
            gains,
            handover,
            state_handover,
            saved,
            segment,
            segment_carries,
            rematerialiser,
            in_shared,
            thread,
            fragment,
            outer,
            slice,
            first_saved,
        }
    }
}

/// The number of a block's recurrence, and the first place of its slice of the width, where that has several.
fn point_and_slice(b: &mut Builder, row: Operand, slices: Option<Operand>, width: u32) -> (Operand, Option<Operand>) {
    let Some(slices) = slices else { return (row, None) };
    let (point, slice) = divided(b, row, slices);
    let slice = b.convert(Ty::I32, slice);
    (point, Some(b.mul(slice, width)))
}

/// The place of the first chunk of the block's sequence among those that are saved, where it has one of several.
fn first_saved(
    b: &mut Builder,
    (args, stage): (&Args, &Stage),
    (form, schedule): (&MatrixRecurrence, &Chunkwise),
    outer: &[(Axis, Operand)],
    slice: Option<(Operand, Operand)>,
) -> Option<Operand> {
    let row = args.number_of(b, form.outer.minus(stage.axis_of_sequences()), outer);
    let row = match slice {
        None => row,
        Some((slices, place)) => {
            let slice = b.binary(Binary::Div, place, schedule.width());
            let [slice, slices] = [slice, slices].map(|x| b.convert(Ty::I64, x));
            let before = b.mul(row, slices);
            b.add(before, slice)
        }
    };
    args.first_tile(b, stage, row, schedule.times())
}

/// The lengths of the running sums and of the gains, for all chunks in flight. Beside warps that only copy every stage has its own;
/// sums of factors in two parts are two numbers each.
fn rates_len(form: &MatrixRecurrence, schedule: &Chunkwise, elem: Elem, [is_split, saves]: [bool; 2]) -> [u32; 2] {
    let times = schedule.times();
    let of_stages = schedule.stages * schedule.heads * times;
    let is_tf32 = schedule.unit == Unit::Warp && elem != Elem::Bf16;
    if schedule.copiers > 0 {
        return [if is_split { 2 * of_stages } else { of_stages }, of_stages];
    }
    let of_sums = match form.channels {
        true => channels::sums_len(elem, schedule, saves),
        false if is_tf32 && elem != Elem::F32 => times,
        false => 2 * times,
    };
    [of_sums, if is_tf32 { times } else { 2 * times }]
}
