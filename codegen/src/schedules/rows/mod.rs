//! Rows: a team of lanes scans rows from one end to the other, tile after tile, with the carry in registers.
//!
//! A team is `lanes` lanes of a warp or `row_warps` whole warps. Its tile is one span per warp, a span is `vectors`
//! stretches of `lanes`·`vector` consecutive elements, and a lane holds `vector` consecutive elements of each stretch,
//! so that every access is one of consecutive lanes at consecutive addresses. In a tile:
//!
//! ```text
//! load                     all accesses of all rows and parameters, before anything else
//! lane totals              e ⊕ e ⊕ …         in each stretch
//! stretch scans            over the lanes, by shuffles
//! span totals              from warp to warp through shared memory, one barrier; only if a team has several warps
//! states                   carry ⊕ earlier spans ⊕ earlier stretches ⊕ earlier lanes, then element by element
//! store
//! ```
//!
//! The order of combination depends on positions only. A reduction is the same without the last two lines.

mod candidates;
mod finals;
mod parameters;
mod scan;
mod strategy;
mod tile;

pub use parameters::Rows;

use super::{LowerError, Strategy};
use crate::abi::{Tensor, axes, elem, tensors};
use crate::block::args::{Args, index_of};
use crate::block::carry::{Fields, Monoid, WarpAxis};
use crate::block::persistent::shared_fields;
use crate::block::point::{Leaves, Point, Position};
use crate::block::pressure::{conversions, temporaries, words_per_element};
use crate::block::reads::{Offsets, constant_along, displacements, used_fields};
use crate::build::{Builder, zero};
use crate::stage::{Refusal, Scan, Stage};
use crate::target::WARP;
use crate::tile::{Kernel, Operand, Reg, SharedId, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Value};
use std::collections::HashMap;

/// The tile kernel of a stage under a rows schedule.
pub fn lower(stage: &Stage, schedule: &Rows, symbol: &str) -> Result<Kernel, LowerError> {
    let scan = stage.scan().ok_or(LowerError::Kind { schedule: Rows::NAME, refusal: Refusal::NoScan })?;
    let Rows { warps, row_warps, lanes, rows, vector, vectors } = *schedule;
    let whole_warps = row_warps > 0 && warps.is_multiple_of(row_warps) && (row_warps == 1 || lanes == WARP);
    let lanes = lanes.is_power_of_two() && lanes <= WARP && [1, 2, 4, 8].contains(&vector);
    if !whole_warps || !lanes || rows == 0 || vectors == 0 || warps > WARP {
        return Err(LowerError::parameters(schedule));
    }
    let mut b = Builder::new(symbol, warps * WARP);
    b.blocks_per_sm(blocks_per_sm(stage, schedule));
    if vector > 1 {
        b.keep_reads();
    }
    let kernel = RowsKernel::declare(&mut b, stage, scan, schedule);
    kernel.body(&mut b);
    Ok(b.finish())
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &Rows) -> u32 {
    let Some(scan) = stage.scan() else { return 0 };
    Builder::shared_bytes_of(|b| drop(RowsKernel::declare(b, stage, scan, schedule)))
}

/// As many blocks as the registers of a multiprocessor certainly allow.
pub fn blocks_per_sm(stage: &Stage, schedule: &Rows) -> u32 {
    let words = words_per_element(stage);
    let held = schedule.rows * schedule.vectors * schedule.vector * words;
    // Scalar accesses keep an address per element; every row has its own bases.
    let addresses = if schedule.vector == 1 { 40 + 7 * held } else { 40 + 8 * (schedule.rows - 1) };
    let bases = 2 * (tensors(stage).count() as u32).saturating_sub(8);
    let combining = 8 * (words.saturating_sub(4) + conversions(stage)) + temporaries(stage);
    // Elements of 8 bytes, two per access, are shuffled and combined in pairs of registers.
    let pairs = if schedule.vector == 2 { 16 } else { 0 };
    let registers = (held + addresses + bases + combining + pairs).next_multiple_of(8).clamp(40, 255);
    // Each of the four parts of a multiprocessor has 16384 registers for a quarter of the warps.
    let warps = 4 * (16384 / (registers * WARP));
    (warps / schedule.warps).clamp(1, 16)
}

/// Everything about the kernel that does not change while its body is emitted.
struct RowsKernel<'s> {
    stage: &'s Stage,
    scan: Scan<'s>,
    schedule: &'s Rows,
    monoid: Monoid<'s>,
    args: Args,
    streams: Vec<Stream>,
    /// Span totals, field by field, for two tiles in turn: of each `rows` times `warps`.
    totals: Vec<SharedId>,
    /// Position of the lane in its team's warp, warp in its team, team in the block; `i32`.
    lane: Operand,
    warp: Operand,
    team: Operand,
    /// Size of the scan axis, `i64`.
    len: Operand,
}

/// A parameter that runs along the scan axis, and the displacements at which it is read.
struct Stream {
    param: u32,
    offsets: Offsets,
}

/// A row that a team scans.
struct Row<'s> {
    /// Whether there is such a row: the last team may have too few.
    exists: Operand,
    indices: Vec<(Axis, Operand)>,
    /// The offset of the first element of every tensor's row.
    bases: HashMap<Tensor, Operand>,
    /// Values that are constant along the row.
    point: Point<'s>,
    /// The state so far.
    carry: Vec<Reg>,
}

impl<'s> RowsKernel<'s> {
    fn declare(b: &mut Builder, stage: &'s Stage, scan: Scan<'s>, schedule: &'s Rows) -> Self {
        let args = Args::declare(b, stage, schedule.abi(stage));
        let monoid = Monoid::new(stage.program.operator(scan.operator), &used_fields(stage, &scan));
        let reads = displacements(stage, scan.axis, values(stage, &scan));
        let streams = reads.into_iter().map(|(param, offsets)| Stream { param, offsets }).collect();
        let exchanged = if schedule.row_warps > 1 { 2 * schedule.rows * schedule.warps } else { 0 };
        let types = if exchanged > 0 { monoid.types() } else { vec![] };
        let totals = shared_fields(b, "totals", &types, exchanged);
        let TeamPlace { lane, warp, team } = team_place(b, schedule);
        let len = args.size(scan.axis);
        RowsKernel { stage, scan, schedule, monoid, args, streams, totals, lane, warp, team, len }
    }

    /// Groups of rows, one for each iteration of a block.
    fn body(&self, b: &mut Builder) {
        let rows = self.args.rows(b, self.stage.outer_axes());
        let block_rows = i64::from(self.schedule.block_rows());
        let groups = b.div_ceil(rows, block_rows);
        let [first, step] = [Special::Block, Special::Blocks].map(|s| {
            let x = b.special(s);
            b.convert(Ty::I64, x)
        });
        let tile = i64::from(self.schedule.tile());
        let tiles = b.div_ceil(self.len, tile);
        let end = b.mul(tiles, tile);
        let parity = b.var(Operand::i32(0));
        b.for_(first, groups, step, |b, group| {
            let mut rows = self.rows(b, group, rows);
            b.for_(Operand::i64(0), end, tile, |b, at| {
                let start = self.start(b, end, at);
                self.tile(b, &mut rows, start, end, at, parity);
            });
            self.finals(b, &rows);
        });
    }

    /// The index of a tile's first element, by how far the tiles before it reach and the end of all.
    fn start(&self, b: &mut Builder, end: Operand, at: Operand) -> Operand {
        if !self.scan.reverse {
            return at;
        }
        let rest = b.sub(end, at);
        b.sub(rest, self.schedule.tile())
    }

    /// The rows of the thread's team in a group.
    fn rows(&self, b: &mut Builder, group: Operand, total: Operand) -> Vec<Row<'s>> {
        let first = b.mul(group, self.schedule.block_rows());
        let team = b.convert(Ty::I64, self.team);
        let own = b.mul(team, self.schedule.rows);
        let first = b.add(first, own);
        (0..self.schedule.rows).map(|k| self.row(b, first, k, total)).collect()
    }

    fn row(&self, b: &mut Builder, first: Operand, k: u32, total: Operand) -> Row<'s> {
        let number = b.add(first, k);
        let (exists, number) = if self.schedule.block_rows() == 1 {
            (Operand::bool(true), number)
        } else {
            let last = b.sub(total, 1);
            (b.lt(number, total), b.binary(Binary::Min, number, last))
        };
        let indices = self.args.row_indices(b, number);
        let bases = tensors(self.stage).map(|t| (t, self.args.offset(b, t, &indices))).collect();
        let point = Point::new(&self.stage.program, Some(self.scan.axis));
        let mut row = Row { exists, indices, bases, point, carry: vec![] };
        let mut point = row.point.clone();
        let mut leaves = RowLeaves { kernel: self, row: &row };
        for value in constant_along(&self.stage.program, self.scan.axis, values(self.stage, &self.scan)) {
            point.here(b, &mut leaves, value);
        }
        let initial = match self.scan.init {
            [] => self.monoid.identity_state(),
            init => self.monoid.keep(init).into_iter().map(|v| point.here(b, &mut leaves, v)).collect::<Fields>(),
        };
        row.carry = b.vars(&initial);
        row.point = point;
        row
    }

    /// The lanes of a team in a warp, in the order of the scan.
    fn lanes(&self) -> WarpAxis {
        let Rows { lanes, .. } = *self.schedule;
        WarpAxis { position: self.lane, count: lanes, stride: 1, reverse: self.scan.reverse }
    }

    /// Elements of a stretch.
    fn stretch(&self) -> u32 {
        self.schedule.lanes * self.schedule.vector
    }

    /// Elements per access of a tensor.
    fn access(&self, tensor: Tensor) -> u32 {
        self.schedule.vector.min(16 / elem(self.stage, tensor).bytes().unwrap_or(16) as u32)
    }

    /// The outputs that have the scan axis, or those that do not.
    fn outputs(&self, finals: bool) -> impl Iterator<Item = u32> {
        (0..self.stage.program.outputs.len()).filter(move |i| self.stage.is_final(*i) == finals).map(|i| i as u32)
    }

    /// A parameter of the row at an index along the scan axis, zero outside it.
    fn far(&self, b: &mut Builder, row: &Row, param: u32, index: Operand) -> Operand {
        let tensor = Tensor::Param(param);
        let inside = b.is_within(index, self.len);
        let stride = self.args.stride(tensor, self.scan.axis);
        let step = b.mul(index, stride);
        let offset = b.add(row.bases[&tensor], step);
        let nothing = zero(elem(self.stage, tensor).value());
        b.load(self.args.memory(tensor), offset, 1, Some(inside), nothing)[0]
    }
}

/// The values at every point: elements, and outputs that have the scan axis.
fn values<'a>(stage: &'a Stage, scan: &Scan<'a>) -> impl Iterator<Item = Value> + use<'a> {
    let outputs = stage.program.outputs.iter().enumerate().filter(|(i, _)| !stage.is_final(*i));
    scan.elements.iter().copied().chain(outputs.map(|(_, o)| o.value))
}

/// The place of a thread in its team and block, `i32`.
struct TeamPlace {
    /// The lane in its team's warp.
    lane: Operand,
    /// The warp in its team.
    warp: Operand,
    /// The team in the block.
    team: Operand,
}

fn team_place(b: &mut Builder, schedule: &Rows) -> TeamPlace {
    let [warp, lane] = [Special::Warp, Special::Lane].map(|s| b.special(s));
    if schedule.lanes < WARP {
        let own = b.binary(Binary::And, lane, schedule.lanes as i32 - 1);
        let of_warp = b.binary(Binary::Shr, lane, schedule.lanes.trailing_zeros());
        let before = b.mul(warp, WARP / schedule.lanes);
        return TeamPlace { lane: own, warp: Operand::i32(0), team: b.add(before, of_warp) };
    }
    let warps = Operand::i32(schedule.row_warps as i32);
    match schedule.warps / schedule.row_warps {
        1 => TeamPlace { lane, warp, team: Operand::i32(0) },
        _ => {
            let (own, team) = (b.binary(Binary::Rem, warp, warps), b.binary(Binary::Div, warp, warps));
            TeamPlace { lane, warp: own, team }
        }
    }
}

/// The leaves of values that are constant along a row.
struct RowLeaves<'k, 's> {
    kernel: &'k RowsKernel<'s>,
    row: &'k Row<'s>,
}

impl Leaves for RowLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let tensor = Tensor::Param(param);
        if axes(self.kernel.stage, tensor).contains(&self.kernel.scan.axis) {
            let index = at.from_end(b, self.kernel.len);
            return self.kernel.far(b, self.row, param, index);
        }
        b.load1(self.kernel.args.memory(tensor), self.row.bases[&tensor])
    }

    fn state(&mut self, _: &mut Builder, _: Value, _: u32, _: Position) -> Operand {
        unreachable!("what is constant along a row does not depend on states")
    }

    fn index(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        index_of(&self.row.indices, axis)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.kernel.args.size(axis)
    }
}
