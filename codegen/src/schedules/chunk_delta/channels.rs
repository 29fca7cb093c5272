//! Decays for each channel: keys, vectors z and queries are multiplied by decays before products take them.
//!
//! With s\[i\] the running sum of the logarithms of a channel's decays from the chunk's start, products over pairs of times are of factors
//! times 2^s\[i\] and keys times 2^−s\[j\], and the walk takes keys times 2^(s\[end\] − s\[j\]). Where 2^−s would leave the range of the
//! elements, 16 channels are summed one after the other, with differences of the sums as exponents.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Literal, Unary};

use super::ahead::{TilePlace, Tiles};
use super::channel_logs::{Fragment, Logs};
use super::{COLUMNS, ChunkDelta, DeltaKernel, PITCH, ROWS, RuleSweep, TIMES, WARPS};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, assign_blocks, block_values, block_vars, zeros};
use crate::block::pair::Values;
use crate::block::parts::Parts;
use crate::block::prepare::copied_fragment;
use crate::block::split_tile::{piece_of_eight, place_of_two, store_two};
use crate::build::{Builder, f32};
use crate::stage::kind::{Channels, DeltaRule};
use crate::tile::{Expr, Memory, Operand, Reg, SharedId, SharedKind, Stmt};
use oplus_dsl::Elem;

/// Factors of two tiles that are multiplied by decays, in shared memory.
#[derive(Clone)]
pub(in crate::schedules) struct ChannelTiles {
    /// Keys, decayed to the end of their chunk.
    pub keys: Tile,
    /// The vectors that the state is read by, decayed from the start of their chunk, if steps read it.
    pub columns: Option<Tile>,
    /// Queries, decayed from the start of their chunk.
    pub queries: Option<Tile>,
    /// The vectors that are added times products with the state, where they are not the keys, decayed to the end of their chunk.
    pub rows: Option<Tile>,
    /// The decays over chunks, for each channel.
    pub ends: SharedId,
    /// The sums of logarithms at 16 times of each warp's chunk in 16 channels: after the steps, and as the state is read.
    pub(super) logs: [SharedId; 2],
}

/// The tiles over the depth that are copied.
pub(super) struct Copied<'t> {
    pub keys: &'t Tile,
    pub columns: Option<&'t Tile>,
    pub queries: Option<&'t Tile>,
    pub rows: Option<&'t Tile>,
}

/// The triangular system of a chunk: of the rows that are added, or of x less what each step reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::schedules) enum System {
    OfRows,
    OfErrors,
}

/// Registers with products over pairs of times.
pub(super) type Products = Vec<[Reg; 4]>;

/// Products over pairs of times of a chunk, each with the vectors that the state is read by and with queries.
pub(in crate::schedules) struct PairProducts {
    /// Of the vectors that are added times what the state gives, or of keys where steps do not read it.
    of_rows: [Products; 2],
    /// Where there are two keys, of those that values are added times.
    of_values: Option<[Products; 2]>,
}

impl PairProducts {
    /// The products that make the triangular system.
    pub(in crate::schedules) fn system(&self) -> Blocks {
        block_values(&self.of_rows[0])
    }
}

impl ChannelTiles {
    /// The tiles of a kernel whose decays differ along the depth. A kernel that prepares one tile of each writes factors in the place of what
    /// they are made of, where both have one type.
    pub(super) fn declare(
        b: &mut Builder,
        elem: Elem,
        schedule: &ChunkDelta,
        form: &DeltaRule,
        copied: Copied<'_>,
    ) -> ChannelTiles {
        let (depth, pairs) = (schedule.depth, schedule.pairs());
        let mut tile = |name: &str, copied: Option<&Tile>| match copied {
            Some(copied) if schedule.sweep == RuleSweep::Prepare && copied.elem == elem => copied.clone(),
            _ => Tile { rows: TIMES, ..Tile::bare(b, name, elem, pairs * TIMES, depth) },
        };
        let keys = tile("decayed_keys", Some(copied.keys));
        let columns = form.reads.then(|| tile("decayed_columns", copied.columns));
        let queries = form.readout.as_ref().map(|_| tile("decayed_queries", copied.queries));
        let rows = form.has_two_keys().then(|| tile("decayed_rows", copied.rows));
        let mut array = |name: &str, len: u32| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let ends = array("decays", pairs * WARPS * depth);
        let mut logs_of = |name, is_used| array(name, if is_used { schedule.systems() * PITCH } else { 0 });
        let logs = [logs_of("logs", true), logs_of("read_logs", form.reads)];
        ChannelTiles { keys, columns, queries, rows, ends, logs }
    }
}

impl DeltaKernel<'_> {
    /// The products over pairs of times of the warp's chunk, and the factors of the walk.
    pub(in crate::schedules) fn channel_pairs(
        &self,
        b: &mut Builder,
        values: &Values,
        tiles: Tiles,
        channels: &ChannelTiles,
        place: &TilePlace,
        system: System,
    ) {
        let products = self.channel_products(b, values, tiles, channels, place);
        self.store_products(b, &products, place, system);
    }

    /// The products over pairs of times of the warp's chunk; writes the factors of the walk.
    pub(in crate::schedules) fn channel_products(
        &self,
        b: &mut Builder,
        values: &Values,
        tiles: Tiles,
        channels: &ChannelTiles,
        place: &TilePlace,
    ) -> PairProducts {
        let mut values = values.clone();
        let first = tiles.first_time(b, place.number);
        let row = self.first_row(b);
        let first = b.add(first, row);
        for h in 0..2 {
            let at = b.add(first, h * COLUMNS);
            values.set_row(h, self.index_along(b, at, self.form.time));
        }
        let mut products = || block_vars(b, &[zeros(); 2]);
        let of_rows = [products(), products()];
        let of_values = self.of_values.as_ref().map(|_| [products(), products()]);
        let sums: Vec<&[Products; 2]> = [&of_rows].into_iter().chain(&of_values).collect();
        let reader = self.log_reader();
        let first = reader.own_logs(b, &values, Operand::i32(0));
        let next: [[Reg; 2]; 4] = first.map(|two| two.map(|log| b.var(log)));
        let sixteens = (self.schedule.depth / ROWS) as i32;
        b.for_(Operand::i32(0), Operand::i32(sixteens), Operand::i32(1), |b, sixteen| {
            let own = next.map(|two| two.map(|log| b.let_(Ty::F32, Expr::Copy(log.into()))));
            let after = b.add(sixteen, 1);
            // Read one iteration of the loop before they are needed.
            let later = reader.own_logs(b, &values, after);
            let logs = reader.channel_logs(b, &values, &own);
            self.sixteen_channels(b, channels, place, &logs, sixteen, &sums);
            let all = next.iter().flatten().zip(later.iter().flatten());
            all.for_each(|(register, log)| b.assign(*register, *log));
        });
        PairProducts { of_rows, of_values }
    }

    /// Writes the system of the warp's chunk, and the weights of pairs of times.
    pub(in crate::schedules) fn store_products(
        &self,
        b: &mut Builder,
        products: &PairProducts,
        place: &TilePlace,
        system: System,
    ) {
        match system {
            _ if !self.form.reads => {}
            System::OfRows => self.store_system(b, &products.system(), place),
            System::OfErrors => self.store_error_system(b, &products.system(), place),
        }
        let is_queried = self.queries.is_some();
        if is_queried {
            self.store_weights(b, &self.weights, &block_values(&products.of_rows[1]), place);
        }
        if let (Some([read, queried]), Some([to_read, to_queries])) = (&products.of_values, &self.of_values) {
            self.store_read_weights(b, to_read, &block_values(read), place);
            if is_queried {
                self.store_weights(b, to_queries, &block_values(queried), place);
            }
        }
    }

    /// Takes 16 channels: adds products over pairs of times, of vectors that rows are added times and of keys where these are others, and
    /// writes the factors of the walk.
    fn sixteen_channels(
        &self,
        b: &mut Builder,
        channels: &ChannelTiles,
        place: &TilePlace,
        logs: &Logs,
        sixteen: Operand,
        sums: &[&[Products; 2]],
    ) {
        let keys = self.loaded(b, &self.keys, place, sixteen);
        let columns = self.columns.as_ref().map_or(keys, |tile| self.loaded(b, tile, place, sixteen));
        let queries = self.queries.as_ref().map(|tile| self.loaded(b, tile, place, sixteen));
        let rows = self.rows.as_ref().map(|tile| self.loaded(b, tile, place, sixteen));
        // In the order of the sums.
        let added: Vec<(Fragment, &Tile)> = match (rows, &channels.rows) {
            (Some(rows), Some(tile)) => vec![(rows, tile), (keys, &channels.keys)],
            _ => vec![(keys, &channels.keys)],
        };
        // A kernel that prepares tiles stores its factors last, where they take the place of elements that other lanes have read.
        let is_last = self.schedule.sweep == RuleSweep::Prepare;
        let start = b.mul(place.pairs.index, channels.keys.len());
        let store = |b: &mut Builder, tile: &Tile, factors: &Fragment, now: bool| {
            if now {
                self.store_factor(b, tile, start, sixteen, factors);
            }
        };
        let read = self.powers_of(b, &logs.read);
        let columns = self.form.reads.then(|| times(b, &columns, &read));
        let read_by = columns.as_ref().zip(channels.columns.as_ref());
        read_by.inspect(|(columns, tile)| store(b, tile, columns, !is_last));
        let after = if self.form.channels == Some(Channels::ReadAfter) { read } else { self.powers_of(b, &logs.after) };
        let queries = queries.map(|queries| times(b, &queries, &after));
        let queried = queries.as_ref().zip(channels.queries.as_ref());
        queried.inspect(|(queries, tile)| store(b, tile, queries, !is_last));
        let ends = logs.end.map(|two| two.map(|end| b.let_(Ty::F32, Expr::Exp2Fast(end))));
        self.store_ends(b, channels, place, sixteen, &ends);
        let is_mild = logs.is_mild(b);
        let inverse = logs.after.map(|two| two.map(|log| b.unary(Unary::Neg, log)));
        let inverse = self.powers_of(b, &inverse);
        let zero = Operand::Const(Ty::U32, Literal::Int(0));
        let mut to_ends: Vec<[[Reg; 2]; 4]> = vec![];
        for ((vectors, tile), [system, weights]) in added.iter().zip(sums) {
            let apart = times(b, vectors, &inverse);
            let right = Parts::of_pairs(b, self.elem(), &apart).map(|pair| b.select(is_mild, pair, zero)).as_right();
            if let Some(columns) = &columns {
                self.add_products(b, system, columns, right);
            }
            if let Some(queries) = &queries {
                self.add_products(b, weights, queries, right);
            }
            let to_end = [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c| b.mul(apart[r][c], ends[r / 2][c])));
            store(b, tile, &to_end, !is_last);
            to_ends.push(to_end.map(|two| two.map(|factor| b.var(factor))));
        }
        let is_strong = b.unary(Unary::Not, is_mild);
        b.if_(is_strong, |b| {
            let apart = [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c| b.sub(logs.end[r / 2][c], logs.after[r][c])));
            let decays = self.powers_of(b, &apart);
            for ((vectors, tile), to_end) in added.iter().zip(&to_ends) {
                let strong = times(b, vectors, &decays);
                store(b, tile, &strong, !is_last);
                to_end.iter().flatten().zip(strong.iter().flatten()).for_each(|(own, factor)| b.assign(*own, *factor));
            }
            self.add_by_channel(b, channels, place, logs, sixteen, sums);
        });
        if is_last {
            b.push(Stmt::SyncWarp);
        }
        read_by.inspect(|(columns, tile)| store(b, tile, columns, is_last));
        queried.inspect(|(queries, tile)| store(b, tile, queries, is_last));
        for ((_, tile), to_end) in added.iter().zip(&to_ends) {
            store(b, tile, &to_end.map(|two| two.map(Operand::Reg)), is_last);
        }
    }

    /// The elements of 16 channels of a tile that was copied, at the warp's chunk.
    fn loaded(&self, b: &mut Builder, tile: &Tile, place: &TilePlace, sixteen: Operand) -> Fragment {
        let first = b.mul(self.thread.warp, ROWS);
        let eight = b.mul(sixteen, 2);
        let start = b.mul(place.deep.index, tile.len());
        copied_fragment(b, (tile, self.copied_elem(tile)), self.thread.lane, start, first, eight)
    }

    /// The type of the elements of a tile that was copied: `f16` may lie where `bf16` will be.
    pub(super) fn copied_elem(&self, tile: &Tile) -> Elem {
        if self.copies_half() { Elem::F16 } else { tile.elem }
    }

    fn powers_of(&self, b: &mut Builder, logs: &Fragment) -> Fragment {
        logs.map(|two| two.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))))
    }

    /// Adds the products of a left factor with a right one.
    fn add_products(&self, b: &mut Builder, sums: &[[Reg; 4]], left: &Fragment, right: Parts) {
        let left = Parts::of_pairs(b, self.elem(), left);
        let mut all: Blocks = block_values(sums);
        left.multiply(b, self.elem(), &mut all, right);
        assign_blocks(b, sums, &all);
    }

    /// Writes the elements of 16 channels of a tile.
    fn store_factor(&self, b: &mut Builder, tile: &Tile, start: Operand, sixteen: Operand, elements: &Fragment) {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let column = place_of_two(b, tile, column);
        let start = b.add(start, column);
        let eight = b.mul(sixteen, 2);
        for (r, two) in (0..).zip(elements) {
            let row = b.add(row, r % 2 * COLUMNS);
            let eight = b.add(eight, r / 2);
            let piece = piece_of_eight(b, tile, eight);
            let index = tile.piece_index(b, row, piece);
            let index = b.add(index, start);
            store_two(b, tile, index, *two, None);
        }
    }

    /// Writes the decays of 16 channels over the chunk.
    fn store_ends(
        &self,
        b: &mut Builder,
        channels: &ChannelTiles,
        place: &TilePlace,
        sixteen: Operand,
        ends: &[[Operand; 2]; 2],
    ) {
        let is_first = b.eq(self.fragment.group, 0);
        let first = self.end_index(b, place, self.thread.warp);
        let from = b.mul(sixteen, ROWS);
        let first = b.add(first, from);
        for (eight, two) in (0..).zip(ends) {
            let index = b.add(first, eight * COLUMNS);
            b.store(Memory::Shared(channels.ends), index, two, Some(is_first));
        }
    }

    /// The index of the decay over a chunk at the thread's first column.
    fn end_index(&self, b: &mut Builder, place: &TilePlace, chunk: Operand) -> Operand {
        let depth = self.schedule.depth;
        let of_tile = b.mul(place.pairs.index, WARPS * depth);
        let of_chunk = b.mul(chunk, depth);
        let first = b.add(of_tile, of_chunk);
        let column = self.fragment.column(b);
        b.add(first, column)
    }

    /// The decays over a chunk at the thread's columns, for every block of the state.
    pub(in crate::schedules) fn ends(
        &self,
        b: &mut Builder,
        channels: &ChannelTiles,
        place: &TilePlace,
        chunk: u32,
    ) -> Vec<[Operand; 2]> {
        let first = self.end_index(b, place, Operand::i32(chunk as i32));
        let block = |block: u32| {
            let index = b.add(first, block * COLUMNS);
            let two = b.load(Memory::Shared(channels.ends), index, 2, None, f32(0.0));
            [two[0], two[1]]
        };
        (0..self.schedule.depth / COLUMNS).map(block).collect()
    }
}

/// The products of two fragments' elements.
pub(in crate::schedules) fn times(b: &mut Builder, elements: &Fragment, by: &Fragment) -> Fragment {
    [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c: usize| b.mul(elements[r][c], by[r][c])))
}
