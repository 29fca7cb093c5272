//! Delta rules in chunks of 16 times, by products of matrices (the UT transform).
//!
//! A stage in this [form](DeltaRule) has states S that are matrices of width × depth. A step decays the state and adds an outer product to
//! it, S\[t\] = w·S\[t−1\] + (b·S\[t−1\]·z + y·x)⊗k\[t\], of the key k and a row over the width: the product of the state with a vector z, and a
//! value x, times the numbers b and y. Let s be the running sum of the logarithms of w from a chunk's start to after a step, and s′ to before
//! it. The rows u of the 16 times of a chunk solve a triangular system:
//!
//! ```text
//! A[i, j] = b[i]·2^(s′[i] − s[j])·(z[i]·k[j]) for j < i
//! (1 − A)·u = b·2^s′·(S·z) + y·x
//! o[i]   = 2^s[i]·S·q[i] + Σ_{j ≤ i} 2^(s[i] − s[j])·(q[i]·k[j])·u[j]
//! S_next = 2^s[end]·S + Σ_j 2^(s[end] − s[j])·u[j]⊗k[j]
//! ```
//!
//! Where a decay differs along the depth, the factors of these products are multiplied by decays. Where what z reads of the state is added
//! times another vector than values are, values have a term of their own in each line. Steps may read nothing of the state (gated linear
//! attention): then b is 0, there is no system, and u is y·x.
//!
//! A block has some places of the width of a recurrence and goes from the first time to the last, in tiles of 64 times. Four warps work one
//! tile ahead: each computes the products over pairs of times of a chunk, and inverts 1 − A by substitution in `f32`. The other warps walk:
//! each has 16 places of the width, whose states stay in its registers as left factors, and goes through the chunks without waiting for
//! the others. A kernel of its own (`prepared`) may compute ahead all that walks need of the tiles. Where blocks are few, each warp that
//! walks has a partner (`readers`) that takes the products of queries behind it.

mod ahead;
mod candidates;
mod channel_logs;
mod channels;
mod chunk;
mod copy_ahead;
mod cost;
mod invert;
mod outputs;
mod parameters;
mod prepared;
mod rates;
mod readers;
mod scaled;
mod scores;
mod solve;
mod staged;
mod state;
mod stored;
mod strategy;
mod strong;
mod walk;

pub use parameters::{ChunkDelta, RuleSweep};

use super::{LowerError, Strategy};
use crate::abi::{Tensor, elem};
use crate::block::args::Args;
use crate::block::copy::Source;
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::block::matmul::{COLUMNS, ROWS};
use crate::block::pair::Index;
use crate::block::prepare::factor_elem;
use crate::block::rematerialise::Rematerialiser;
use crate::block::ring::Ring;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::DeltaRule;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, SharedId, SharedKind, Special, Stmt};
use channels::{ChannelTiles, Copied};
use oplus_dsl::ir::Axis;
use oplus_dsl::{Elem, Ty};
use prepared::OwnTile;
use readers::Handed;

pub(in crate::schedules) use ahead::{TilePlace, Tiles};
pub(in crate::schedules) use candidates::{prepared_stages, prepares_itself, stages_of, vector_of};
pub(in crate::schedules) use channel_logs::{CHANNELS, Fragment, LogReader, Logs};
pub(in crate::schedules) use channels::{System, times};
pub(in crate::schedules) use chunk::Factors;
pub(in crate::schedules) use cost::{Decays, UNREAD_PARTS, WalkCost, copied_parts, preparation, products};
pub(in crate::schedules) use prepared::of_all_tiles;
pub(in crate::schedules) use rates::{ADDED, FROM_START, READ, TO_END, before_step, forgotten, reset_at};
pub(in crate::schedules) use scaled::{Columns, PowerCheck, times as times_number, times_columns, undecayed};
pub(in crate::schedules) use scores::{PairBlock, PairLogs};
pub(in crate::schedules) use staged::Staged;
pub(in crate::schedules) use state::{PLACES, State};
pub(in crate::schedules) use stored::{Stored, StoredIn};
pub(in crate::schedules) use strategy::fit;
pub(in crate::schedules) use walk::AllLanes;

/// Warps that compute products over pairs of times, and chunks of a tile.
pub(in crate::schedules) const WARPS: u32 = 4;
/// Times of a tile.
pub(in crate::schedules) const TIMES: u32 = WARPS * ROWS;
/// The most tiles whose products over pairs of times are in shared memory.
const PAIRS: u32 = 2;
/// The most places of the depth whose tiles of `f32` have all stages.
const LARGEST_IN_FLIGHT: u32 = 64;
/// Elements from one row of a system, or of logarithms, to the next.
pub(in crate::schedules) const PITCH: u32 = ROWS + 4;

/// Bytes of shared memory of a multiprocessor of Hopper, and those of a block that the device keeps for itself.
const SHARED_OF_MULTIPROCESSOR: u32 = 228 << 10;
const SHARED_OF_DEVICE: u32 = 1 << 10;

/// The tile kernel of a stage under such a schedule.
fn lower(stage: &Stage, schedule: &ChunkDelta, symbol: &str) -> Result<Kernel, LowerError> {
    let ChunkDelta { depth, padded, wide, places, stages, vector, blocks, sweep, readers } = *schedule;
    let is_possible =
        depth > 0 && depth.is_multiple_of(ROWS) && stages >= schedule.least_stages() && blocks > 0 && !(padded && wide);
    if !is_possible || !matches!(vector, 1 | 2 | 4 | 8) || !matches!(places, 16 | 32 | 64) {
        return Err(LowerError::parameters(schedule));
    }
    let form = stage.kind().delta().map_err(|refusal| LowerError::Kind { schedule: ChunkDelta::NAME, refusal })?;
    let has_singles = sweep != RuleSweep::Whole && vector == 1;
    if has_singles || readers && form.readout.is_none() {
        return Err(LowerError::parameters(schedule));
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(blocks);
    let args = Args::declare(&mut b, stage, schedule.abi(stage));
    DeltaKernel::declare(&mut b, stage, form, schedule, args).body(&mut b);
    let mut kernel = b.finish();
    // Threads of blocks that find no room beside one another have the registers of all.
    kernel.blocks_per_sm = blocks.min(blocks_with_room(kernel.shared_layout().1)).max(1);
    Ok(kernel)
}

/// How many blocks of so many bytes of shared memory a multiprocessor has room for, on the device with most.
fn blocks_with_room(bytes: u32) -> u32 {
    SHARED_OF_MULTIPROCESSOR / (bytes + SHARED_OF_DEVICE)
}

/// Whether addresses of single elements leave few registers beside the state.
fn is_scarce(schedule: &ChunkDelta) -> bool {
    schedule.vector == 1 && schedule.depth > 64
}

/// Whether walks keep bounds of packed sequences in registers beside the state of a rule whose steps read nothing of it.
fn keeps_bounds(stage: &Stage, form: &DeltaRule) -> bool {
    !form.reads && stage.sequences().is_some()
}

/// Whether a stage has outputs that are written once, after the walk.
fn has_last_state(stage: &Stage) -> bool {
    (0..stage.program.outputs.len()).any(|output| stage.is_final(output))
}

/// The shared memory of the kernel.
fn shared_bytes(stage: &Stage, schedule: &ChunkDelta) -> u32 {
    let Ok(form) = stage.kind().delta() else { return 0 };
    let mut b = Builder::new("", WARP);
    let args = Args::declare(&mut b, stage, schedule.abi(stage));
    DeltaKernel::declare(&mut b, stage, form, schedule, args);
    b.finish().shared_layout().1
}

/// A stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
#[derive(Clone)]
pub(in crate::schedules) struct DeltaKernel<'s> {
    pub(in crate::schedules) stage: &'s Stage,
    pub(in crate::schedules) form: &'s DeltaRule,
    pub(in crate::schedules) schedule: &'s ChunkDelta,
    pub(in crate::schedules) args: Args,
    /// Keys, and values of the block's part of the width, of the tiles in flight.
    pub(in crate::schedules) keys: Tile,
    pub(in crate::schedules) values: Tile,
    /// The vectors that the state is read by, where they are not the keys; queries, where there are any.
    pub(in crate::schedules) columns: Option<Tile>,
    pub(in crate::schedules) queries: Option<Tile>,
    /// The vectors that are added times the products of these with the state, where they are not the keys.
    rows: Option<Tile>,
    /// Keys, vectors and queries as the walk takes them, where decays differ along the depth.
    pub(in crate::schedules) channels: Option<ChannelTiles>,
    /// Of each chunk of two tiles the inverse of its system, where steps read the state, and weights of keys for queries.
    pub(in crate::schedules) inverses: Option<Tile>,
    pub(in crate::schedules) weights: Tile,
    /// Where there are two keys, the weights of values in what is read of the state, and for queries.
    pub(in crate::schedules) of_values: Option<[Tile; 2]>,
    /// The systems, in `f32`.
    pub(in crate::schedules) systems: SharedId,
    /// The rates of the times of the tiles in flight, an array for each kind.
    pub(in crate::schedules) rates: Vec<SharedId>,
    /// The mbarriers of tiles whose products over pairs of times are there, and of tiles that have been walked.
    pub(in crate::schedules) ready: SharedId,
    pub(in crate::schedules) walked: SharedId,
    /// The place of the thread, and of its warp, among those of its role.
    pub(in crate::schedules) thread: Thread,
    pub(in crate::schedules) fragment: FragmentPlace,
    /// The index along every outer axis but the width.
    pub(in crate::schedules) outer: Vec<(Axis, Operand)>,
    /// The first place of the block's part of the width, `i32`.
    pub(in crate::schedules) part: Operand,
    /// The [rematerialised](Self::rematerialised) indices of the outer axes, and the first place of the part.
    rematerialiser: Option<Rematerialiser>,
    /// Whether products take states of `bf16` as two parts, beside factors that have been rounded.
    pub(in crate::schedules) splits_states: bool,
    /// Whether values are 0, whatever the parameter has.
    pub(in crate::schedules) has_no_values: bool,
    /// The output that goes through shared memory.
    pub(in crate::schedules) staged: Option<Staged>,
    /// The tile of a block that prepares one.
    own_tile: Option<OwnTile>,
    /// The state before a tile of times, of walks that [take it once more](PowerCheck) where its power has to change.
    kept: Option<SharedId>,
    /// What warps that walk hand to their partners, where they have any.
    handed: Option<Handed>,
}

impl<'s> DeltaKernel<'s> {
    fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRule,
        schedule: &'s ChunkDelta,
        args: Args,
    ) -> DeltaKernel<'s> {
        let mut kernel = DeltaKernel::walking(b, stage, form, schedule, args);
        if schedule.sweep != RuleSweep::Prepare {
            kernel.staged = Staged::declare(b, &kernel);
            kernel.handed = Handed::declare(b, &kernel);
        }
        kernel
    }

    /// A kernel that walks the chunks of a rule, and writes no outputs at its times.
    pub(in crate::schedules) fn walking(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRule,
        schedule: &'s ChunkDelta,
        mut args: Args,
    ) -> DeltaKernel<'s> {
        let mut tile = |param: u32, inner: Axis, depth: u32| {
            let (own, is_deep) = (elem(stage, Tensor::Param(param)), inner == form.depth);
            let stages = if is_deep { deep_stages(stage, form, schedule) } else { schedule.stages };
            let shape = TileShape { rows: TIMES, depth, stages };
            // Where decays differ along the depth, factors are made of these elements elsewhere.
            let own = if is_deep { scaled::deep_elem(stage, form, schedule) } else { own };
            Tile::declare_as(b, stage, TileOf { param, along: form.time, inner }, shape, own)
        };
        let mut keys = tile(form.key, form.depth, schedule.depth);
        let mut values = tile(form.value.param, form.width, schedule.places);
        let mut columns = (form.column.param != form.key).then(|| tile(form.column.param, form.depth, schedule.depth));
        let mut queries = form.readout.as_ref().map(|readout| tile(readout.query.param, form.depth, schedule.depth));
        let mut rows = form.has_two_keys().then(|| tile(form.row.param, form.depth, schedule.depth));
        let elem = factor_elem(keys.elem, schedule.vector, schedule.depth);
        let copied = Copied { keys: &keys, columns: columns.as_ref(), queries: queries.as_ref(), rows: rows.as_ref() };
        let channels = form.channels.map(|_| ChannelTiles::declare(b, elem, schedule, form, copied));
        let mut pairs = |name: &str| Tile { rows: TIMES, ..Tile::bare(b, name, elem, schedule.pairs() * TIMES, ROWS) };
        let (inverses, weights) = (form.reads.then(|| pairs("inverses")), pairs("weights"));
        let of_values = form.has_two_keys().then(|| ["values_read", "values_queried"].map(&mut pairs));
        let array = |b: &mut Builder, name: &str, len: u32| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let systems = if form.reads { schedule.systems() } else { 0 };
        let systems = array(b, "systems", systems * PITCH);
        let kinds = rates::kinds(form);
        let rates = kinds.iter().map(|name| array(b, name, schedule.stages * TIMES)).collect();
        for tile in [&mut keys, &mut values].into_iter().chain(&mut columns).chain(&mut queries).chain(&mut rows) {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, schedule.stages);
        }
        let [ready, walked] = ["ready", "walked"].map(|name| b.shared(name, SharedKind::Mbarrier, schedule.pairs()));
        let thread = Thread::of(b);
        let fragment = FragmentPlace::of(b, thread.lane);
        let (own_tile, outer, part) = if schedule.sweep == RuleSweep::Prepare {
            let (tile, outer) = prepared::own_tile(b, stage, &mut args, form);
            (Some(tile), outer, Operand::i32(0))
        } else {
            let (mut outer, part) = place(b, &args, form, schedule.places);
            args.enter_sequence(b, stage, &mut outer);
            (None, outer, part)
        };
        let kept =
            scaled::are_scaled(stage, form, schedule).then(|| array(b, "kept", schedule.places * schedule.depth));
        // A block alone on a multiprocessor whose factors have one part has registers enough for the places of both states.
        let is_tight = elem == Elem::F32 || schedule.blocks > 1 || keeps_bounds(stage, form);
        let has_last = has_last_state(stage) && schedule.sweep != RuleSweep::Prepare;
        let is_used = is_scarce(schedule) || is_tight && has_last;
        let rematerialiser = is_used.then(|| Rematerialiser::declare(b, outer.len() + 1));
        DeltaKernel {
            stage,
            form,
            schedule,
            args,
            keys,
            values,
            columns,
            queries,
            rows,
            channels,
            inverses,
            weights,
            of_values,
            systems,
            rates,
            ready,
            walked,
            thread,
            fragment,
            outer,
            part,
            rematerialiser,
            splits_states: false,
            has_no_values: false,
            staged: None,
            own_tile,
            kept,
            handed: None,
        }
    }

    /// The kernel for a rule of the same vectors with other numbers: its rates are its own, and where there is one key its systems, too. These
    /// take the place of logarithms.
    pub(in crate::schedules) fn beside(&self, b: &mut Builder, form: &'s DeltaRule) -> DeltaKernel<'s> {
        let kind = SharedKind::Elem(Elem::F32);
        let names = rates::kinds(form).iter().map(|name| format!("other_{name}"));
        let rates = names.map(|name| b.shared(name, kind, self.schedule.stages * TIMES)).collect();
        let kernel = DeltaKernel { form, rates, ..self.clone() };
        let has_own_systems = form.reads && !form.has_two_keys();
        let Some(channels) = self.channels.as_ref().filter(|_| has_own_systems) else { return kernel };
        let pairs = self.schedule.pairs() * TIMES;
        let inverses = Tile { rows: TIMES, ..Tile::bare(b, "other_inverses", self.elem(), pairs, ROWS) };
        DeltaKernel { systems: channels.logs[0], inverses: Some(inverses), ..kernel }
    }

    /// The kernel with rematerialised places of the block and its threads, where registers are few: those of the first state would be kept
    /// through the walk for the last one.
    pub(in crate::schedules) fn rematerialised(&self, b: &mut Builder) -> Self {
        let Some(rematerialiser) = self.rematerialiser else { return self.clone() };
        let thread = self.thread.rematerialised(b, rematerialiser);
        let fragment = FragmentPlace::of(b, thread.lane);
        let part = rematerialiser.read(b, self.outer.len());
        let part = b.convert(Ty::I32, part);
        let outer = rematerialiser.outer(b, &self.outer);
        Self { thread, fragment, outer, part, ..self.clone() }
    }

    /// Whether a state of more than 64 keys stands beside factors in two parts, which leaves few registers.
    fn is_deep_in_two_parts(&self) -> bool {
        self.elem() == Elem::F32 && self.schedule.depth > 64
    }

    /// The kernel with places that are rematerialised for each tile and for its outputs; `None` where there are registers enough for them.
    pub(in crate::schedules) fn rematerialised_in_walk(&self, b: &mut Builder) -> Option<Self> {
        let has_few_registers = is_scarce(self.schedule) || self.is_deep_in_two_parts();
        let is_used = self.rematerialiser.is_some() && has_few_registers;
        is_used.then(|| self.rematerialised_behind_barrier(b))
    }

    /// The kernel with places that are rematerialised in the middle of a walk.
    pub(in crate::schedules) fn rematerialised_behind_barrier(&self, b: &mut Builder) -> Self {
        // The compiler reads the numbers again behind this barrier. Without it all chunks of a tile would share what is read once, which
        // would stay in registers.
        b.push(Stmt::SyncWarp);
        self.rematerialised(b)
    }

    /// See [`keeps_bounds`].
    pub(in crate::schedules) fn keeps_bounds(&self) -> bool {
        keeps_bounds(self.stage, self.form)
    }

    /// The type of factors of products over pairs of times.
    pub(in crate::schedules) fn elem(&self) -> Elem {
        self.weights.elem
    }

    /// A tile of factors over the depth, all of which have one layout.
    pub(in crate::schedules) fn factor_tile(&self) -> &Tile {
        self.channels.as_ref().map_or(&self.keys, |channels| &channels.keys)
    }

    /// The tiles over the depth.
    fn deep_tiles(&self) -> impl Iterator<Item = &Tile> {
        [&self.keys].into_iter().chain(&self.columns).chain(&self.queries).chain(&self.rows)
    }

    /// The tiles that are copied.
    pub(in crate::schedules) fn tiles(&self) -> impl Iterator<Item = &Tile> {
        [&self.keys, &self.values].into_iter().chain(&self.columns).chain(&self.queries).chain(&self.rows)
    }

    /// The source of copies, by the warps that compute ahead.
    fn source(&self) -> Source<'_> {
        Source {
            args: &self.args,
            outer: &self.outer,
            threads: WARPS * WARP,
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: false,
            rolled: self.rolled(),
        }
    }

    /// The pieces that the warps that compute ahead copy at once: addresses of all single elements of a large tile would take their registers.
    fn rolled(&self) -> Option<u32> {
        let is_split = self.elem() == Elem::F32;
        match &self.channels {
            _ if self.schedule.vector > 1 => None,
            Some(_) => (is_split || self.form.has_two_keys()).then_some(1),
            None => is_scarce(self.schedule).then_some(4),
        }
    }

    /// The offset at which a tile's tensor begins for the block, at its part of the width.
    fn origin(&self, b: &mut Builder, tile: &Tile, source: &Source) -> Operand {
        let origin = tile.origin(b, source);
        if tile.inner != self.form.width {
            return origin;
        }
        let place = b.convert(Ty::I64, self.part);
        let by = b.mul(place, self.args.stride(Tensor::Param(tile.param), tile.inner));
        b.add(origin, by)
    }

    /// The index along an axis, from one of 32 bits; along the width, from one of the block's part.
    pub(in crate::schedules) fn index_along(&self, b: &mut Builder, at: Operand, axis: Axis) -> Index {
        let at = if axis == self.form.width { b.add(self.part, at) } else { at };
        Index::along(b, &self.args, at, axis)
    }

    /// The thread's first row of the 16 of its warp.
    pub(in crate::schedules) fn first_row(&self, b: &mut Builder) -> Operand {
        self.fragment.row(b, self.thread.warp)
    }

    /// The index of a tile's rates.
    fn rates_from(&self, b: &mut Builder, tile: Operand) -> Operand {
        let stage = Ring::of(self.schedule.stages).stage(b, tile);
        b.mul(stage, Operand::i32(TIMES as i32))
    }
}

/// The stages of tiles over the depth: none where another kernel makes factors of them. Where decays differ along it, only the warps that compute ahead read them. Those of `f32` are too
/// large for more where they are deepest: the next ones are copied when those before have been walked, or of one stage when they have been read.
fn deep_stages(stage: &Stage, form: &DeltaRule, schedule: &ChunkDelta) -> u32 {
    match schedule.sweep {
        RuleSweep::Walk if form.channels.is_some() => return 0,
        RuleSweep::Walk => return schedule.stages,
        RuleSweep::Prepare => return 1,
        RuleSweep::Whole => {}
    }
    if form.channels.is_some() || copies_late(stage, form, schedule) { schedule.stages - 1 } else { schedule.stages }
}

/// Whether the tiles of keys that come next are copied when those before have been walked.
fn copies_late(stage: &Stage, form: &DeltaRule, schedule: &ChunkDelta) -> bool {
    let is_wide = elem(stage, Tensor::Param(form.key)) == Elem::F32;
    is_wide && form.channels.is_none() && schedule.depth > LARGEST_IN_FLIGHT
}

/// The index along every outer axis of a block but the width, and the first place of its part of the width, `i32`.
fn place(b: &mut Builder, args: &Args, form: &DeltaRule, places: u32) -> (Vec<(Axis, Operand)>, Operand) {
    let block = b.special(Special::Block);
    let block = b.convert(Ty::I64, block);
    let parts = b.div_ceil(args.size(form.width), places);
    let [point, part] = b.div_rem(block, parts);
    let outer = args.indices(b, point, form.outer);
    let part = b.convert(Ty::I32, part);
    (outer, b.mul(part, places))
}

/// Columns of a block that a thread has, in its two rows: number r of four is in row r / 2 and column r mod 2.
pub(in crate::schedules) const ELEMENTS: [(usize, usize); 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];
