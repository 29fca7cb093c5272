//! The third sweep of rules whose decays differ along the depth.
//!
//! A warp has 16 times of a recurrence, a chunk, and 32 places of the depth. Walks have saved the states and their cotangents at the borders
//! of every chunk, so no decay reaches beyond a chunk. The letters are those of [the module above](super): s and s′ are running sums of
//! logarithms, D is the cotangent of the state after the chunk, c the cotangent of a query's reading, e the error of a step, and p the
//! product of the state's cotangent with a key. For a later time i and an earlier time j, P\[i, j\] = c\[i\]·e\[j\] and
//! P′\[i, j\] = p\[i\]·e\[j\] are sums over the width. Then
//!
//! ```text
//! Σ c·S[i]   = 2^s[i]·c[i]·S  + Σ_{j ≤ i} P[i, j]·y[j]·2^(s[i] − s[j])·k[j]
//! Σ p·S[i−1] = 2^s′[i]·p[i]·S + Σ_{j < i} P′[i, j]·y[j]·2^(s′[i] − s[j])·k[j]
//! Σ e·Λ[j]   = 2^(s[end] − s[j])·e[j]·D + Σ_{i ≥ j} P[i, j]·g[i]·2^(s[i] − s[j])·q[i] − Σ_{i > j} P′[i, j]·y[i]·2^(s′[i] − s[j])·z[i]
//! ```
//!
//! for every channel. Vectors are multiplied by 2^s or 2^−s before products over times take them; where decays are too strong for that,
//! the pairs of times are summed one after the other.

mod copies;
mod energies;
mod outputs;
mod sixteen;
mod strong;
mod sums;

use super::common::{Place, Third};
use super::{ChunkDeltaBackward, TIMES};
use crate::block::args::Args;
use crate::block::layout::{Lanes, Tile, TileOf, TileShape, left_rows};
use crate::block::matmul::{COLUMNS, Factor, ROWS};
use crate::block::pair::{Index, Values};
use crate::block::prepare::factor_elem;
use crate::block::sequence::SequenceTile;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::{Builder, zero};
use crate::schedules::chunk_delta::LogReader;
use crate::stage::Stage;
use crate::stage::kind::{Channels, DeltaRuleBackward};
use crate::target::WARP;
use crate::tile::{Operand, Reg, SharedId, SharedKind, Stmt};
use oplus_dsl::ir::Axis;
use oplus_dsl::{Elem, Ty};

/// Warps of a block.
pub(super) const WARPS: u32 = 4;
/// Places of the depth of a warp.
const SLICE: u32 = 32;

/// Elements from one row of logarithms to the next. Rows are as close as they can be: with 64 places in `f32` a second block has just room.
const PITCH: u32 = ROWS;

/// The times of a block whose warps have all of the depth.
pub(super) fn times(depth: u32) -> u32 {
    WARPS * SLICE / depth * ROWS
}

/// A stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
pub(super) struct ChannelGradients<'s> {
    stage: &'s Stage,
    form: &'s DeltaRuleBackward,
    schedule: &'s ChunkDeltaBackward,
    args: Args,
    /// The block's times, where they are of one of several sequences.
    pub(super) tile: Option<SequenceTile>,
    /// Keys, queries, and the vectors that the state is read by, where they are not the keys.
    keys: Tile,
    queries: Tile,
    columns: Option<Tile>,
    /// Of a rule with two keys, the vectors by which the readings of the state are multiplied when they are added.
    rows: Option<Tile>,
    /// The cotangents of queries' readings, the errors of steps, and, where steps read the state, the products of the states' cotangents
    /// with keys, of a part of the width.
    cotangents: Tile,
    errors: Tile,
    products: Option<Tile>,
    /// Of a rule with two keys, values, and the products of cotangents of states with their keys.
    of_values: Option<[Tile; 2]>,
    /// The state before each chunk and the cotangent of the one after: a stage for each chunk.
    states: Tile,
    duals: Tile,
    /// Products over pairs of times of each kind of rows that are added: with the cotangents of queries' readings (P), and with the
    /// products of the states' cotangents (P′). There are 16 rows for each warp.
    pairs: Vec<Vec<Tile>>,
    /// [Vectors](sixteen::Vectors) multiplied by decays: 16 rows for each warp.
    factors: Vec<Tile>,
    /// Where decays are strong, sums of logarithms after steps and as the state is read: 16 rows for each warp.
    logs: Vec<SharedId>,
    /// The warps' shares of sums over the depth.
    parts: SharedId,
    thread: Thread,
    /// The warp's chunk, and its part of the depth.
    chunk: Operand,
    slice: Operand,
    fragment: FragmentPlace,
}

/// Declares the barriers at which threads wait for tiles.
fn declare_barriers<'t>(b: &mut Builder, tiles: impl Iterator<Item = &'t mut Tile>) {
    for tile in tiles {
        tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, 1);
    }
}

impl<'s> ChannelGradients<'s> {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRuleBackward,
        schedule: &'s ChunkDeltaBackward,
        mut args: Args,
    ) -> ChannelGradients<'s> {
        let (rule, depth) = (&form.states, schedule.depth);
        let (times, split) = (times(depth), depth / SLICE);
        let tile_of_sequence = args.enter_tile(b, stage, rule.outer, (TIMES, TIMES / times));
        let chunks = WARPS / split;
        let mut tile = |param: u32, inner: Axis, depth: u32| {
            let shape = TileShape { rows: times, depth, stages: 1 };
            Tile::declare(b, stage, TileOf { param, along: rule.time, inner }, shape)
        };
        let mut keys = tile(rule.key, rule.depth, depth);
        let mut queries = tile(form.query.param, rule.depth, depth);
        let has_two_keys = rule.has_two_keys();
        let mut rows = has_two_keys.then(|| tile(rule.row.param, rule.depth, depth));
        let mut columns = (rule.column.param != rule.key).then(|| tile(rule.column.param, rule.depth, depth));
        let elem = factor_elem(keys.elem, schedule.vector, depth);
        let mut factor = |param: u32| {
            let shape = TileShape { rows: times, depth: TIMES, stages: 1 };
            Tile::declare_as(b, stage, TileOf { param, along: rule.time, inner: rule.width }, shape, elem)
        };
        let mut cotangents = factor(form.cotangents.value.param);
        let is_unread = !rule.reads;
        let mut values = (has_two_keys || is_unread).then(|| factor(rule.value.param));
        let mut rows_of = |name: &str| Tile::bare(b, name, elem, times, TIMES);
        // Without reads of the state, the errors of steps are the values.
        let mut errors = values.take_if(|_| is_unread).unwrap_or_else(|| rows_of("errors"));
        let mut products = rule.reads.then(|| rows_of("products"));
        let [mut states, mut duals] = ["states", "duals"].map(|name| {
            let all = Tile::bare(b, name, elem, chunks * TIMES, depth);
            Tile { rows: TIMES, ..all }
        });
        let mut of_values = values.map(|values| [values, Tile::bare(b, "value_products", elem, times, TIMES)]);
        let added = if has_two_keys { 2 } else { 1 };
        let mut bare = |name: String, elem: Elem| Tile::bare(b, &name, elem, WARPS * ROWS, ROWS);
        let kinds = if rule.reads { &["queried", "read"][..] } else { &["queried"] };
        let mut of_kinds = |k| kinds.iter().map(|name| bare(format!("pairs_{name}_{k}"), elem)).collect();
        let pairs = (0..added).map(&mut of_kinds).collect();
        // Vectors of `f16` keep their bits in two parts, too.
        let vectors = if keys.elem == Elem::F16 { Elem::F32 } else { elem };
        let factors = (0..kinds.len() + added).map(|k| bare(format!("decayed_{k}"), vectors)).collect();
        let mut array = |name: &str, len: u32| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let logs = ["logs", "read_logs"][..kinds.len()].iter().map(|name| array(name, WARPS * ROWS * PITCH)).collect();
        let parts = array("parts", form.totals.len() as u32 * split * times);
        let of_part = [&mut cotangents, &mut errors, &mut states, &mut duals].into_iter().chain(&mut products);
        let deep = [&mut keys, &mut queries].into_iter().chain(&mut columns).chain(&mut rows);
        declare_barriers(b, deep.chain(of_part).chain(of_values.iter_mut().flatten()));
        let thread = Thread::of(b);
        let [chunk, slice] = b.div_rem(thread.warp, split);
        let fragment = FragmentPlace::of(b, thread.lane);
        ChannelGradients {
            stage,
            form,
            schedule,
            args,
            tile: tile_of_sequence,
            keys,
            queries,
            columns,
            rows,
            cotangents,
            errors,
            products,
            of_values,
            states,
            duals,
            pairs,
            factors,
            logs,
            parts,
            thread,
            chunk,
            slice,
            fragment,
        }
    }

    /// The parts that both kernels of the third sweep have.
    fn third(&self) -> Third<'_> {
        let Self { stage, form, schedule, args, thread, .. } = self;
        Third { stage, form, schedule, args, thread: *thread }
    }

    pub(super) fn body(&self, b: &mut Builder) {
        self.start(b);
        let place = self.third().place(b, &self.tile, Some(times(self.schedule.depth)), None);
        self.fetch_deep(b, &place);
        let axes = [self.form.states.time, self.form.states.width];
        let mut values = Values::new(self.stage, &self.args, axes, place.outer.clone());
        self.set_rows(b, &mut values, &place);
        let sums = self.all_parts(b, &values, &place);
        self.wait_deep(b);
        self.store_pairs(b, &sums);
        let totals: Vec<[Reg; 2]> =
            self.form.totals.iter().map(|_| [zero(Ty::F32); 2].map(|none| b.var(none))).collect();
        self.sixteens(b, &values, &sums, &totals);
        let totals: Vec<[Operand; 2]> = totals.into_iter().map(|two| two.map(Operand::Reg)).collect();
        self.store_totals(b, &totals);
        self.store_steps(b, &values, &place);
    }

    /// The type of factors of products.
    fn elem(&self) -> Elem {
        self.errors.elem
    }

    /// The reader of the logarithms of decays: sums are of the state as the step before has left it.
    fn log_reader(&self) -> LogReader<'_> {
        let (form, channels) = (&self.form.states, Some(Channels::ReadBefore));
        LogReader { form, args: &self.args, channels, fragment: self.fragment }
    }

    /// How many vectors read states: the queries, and the vectors by which steps read them, if they do.
    fn readers(&self) -> usize {
        if self.form.states.reads { 2 } else { 1 }
    }

    /// The vectors that the state is read by.
    fn columns(&self) -> &Tile {
        self.columns.as_ref().unwrap_or(&self.keys)
    }

    /// An outer product that a step adds to the state: a row over the width, and the vector over the depth that it is multiplied by.
    fn added(&self) -> Vec<(&Tile, &Tile)> {
        match (&self.rows, &self.of_values) {
            (Some(rows), Some([values, _])) => vec![(&self.errors, rows), (values, &self.keys)],
            _ => vec![(&self.errors, &self.keys)],
        }
    }

    /// The first of the warp's 16 times among the block's.
    fn first_of_chunk(&self, b: &mut Builder) -> Operand {
        b.mul(self.chunk, ROWS)
    }

    /// The thread's first row among the block's times.
    fn first_row(&self, b: &mut Builder) -> Operand {
        self.fragment.row(b, self.chunk)
    }

    /// Sets the thread's two times as rows.
    fn set_rows(&self, b: &mut Builder, values: &mut Values, place: &Place) {
        let row = self.first_row(b);
        let row = b.add(place.first, row);
        for h in 0..2 {
            let at = b.add(row, h * COLUMNS);
            values.set_row(h, self.index_along(b, at, self.form.states.time));
        }
    }

    /// An index along an axis, from one of 32 bits.
    fn index_along(&self, b: &mut Builder, at: Operand, axis: Axis) -> Index {
        Index::along(b, &self.args, at, axis)
    }

    /// The lanes of the warp's part of the depth, from row `first` of a tile on, and where its panel begins.
    fn slice_lanes(&self, b: &mut Builder, tile: &Tile, first: Operand) -> (Lanes, Operand) {
        let (row, half) = left_rows(b, self.thread.lane);
        let row = b.add(first, row);
        let own = b.mul(self.slice, SLICE / tile.piece());
        let [panel, piece] = b.div_rem(own, tile.panel() / tile.piece());
        let piece = b.add(piece, half);
        (tile.lanes(b, row, piece), b.mul(panel, tile.rows * tile.panel()))
    }

    /// The warp's 16 rows of a tile that has so many for each warp: as the lanes of a left factor, or of a right one over rows.
    fn own_factor<'a>(&self, b: &mut Builder, tile: &'a Tile, lanes: &'a Lanes) -> Factor<'a> {
        let start = b.mul(self.thread.warp, ROWS * tile.panel());
        Factor { tile, lanes, start }
    }

    /// Waits for the warp's stores to shared memory.
    fn sync(&self, b: &mut Builder) {
        b.push(Stmt::SyncWarp);
    }

    /// Threads of a block.
    fn threads(&self) -> u32 {
        WARPS * WARP
    }
}
