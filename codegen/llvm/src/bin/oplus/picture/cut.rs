//! How a launch cuts its work into tiles: what the picture of a plan shows of a schedule.

use oplus_codegen::plan::Launch;
use oplus_codegen::schedule::{Columns, Form, LookBack, Rows, Schedule, Sweep, WARP};
use oplus_codegen::schedules::chunkwise_backward::TIMES;
use oplus_dsl::ir::Axis;

/// An axis, or several that count as one, in tiles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) tile: u64,
}

impl Side {
    /// How many tiles there are; at least one, so that there is something to draw.
    pub(super) fn tiles(&self) -> u64 {
        self.size.div_ceil(self.tile.max(1)).max(1)
    }
}

/// How what precedes a tile reaches it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Carry {
    /// Tiles have nothing to do with each other.
    None,
    /// A block goes from tile to tile and keeps the state.
    Kept,
    /// Blocks draw tiles in order; one folds what others publish since its own last tile.
    LookBack,
}

/// What a tile consists of: warps, stretches of a warp, lanes of a stretch, elements of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tile {
    pub(super) warps: u32,
    pub(super) stretches: u32,
    pub(super) lanes: u32,
    pub(super) elements: u32,
}

/// A launch's work: tiles along an axis, and across it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) along: Side,
    pub(super) across: Side,
    pub(super) blocks: u64,
    pub(super) carry: Carry,
    pub(super) reverse: bool,
    pub(super) tile: Option<Tile>,
}

impl Cut {
    /// The number of a tile in the order of the scan, and the block that computes it.
    pub(super) fn tile_and_block(&self, row: u64, tile: u64) -> (u64, u64) {
        let number = row * self.along.tiles() + if self.reverse { self.along.tiles() - 1 - tile } else { tile };
        (number, if self.carry == Carry::Kept { row } else { number } % self.blocks.max(1))
    }

    pub(super) fn of(launch: &Launch) -> Cut {
        let (stage, sizes) = (&*launch.stage, launch.sizes());
        let size = |axis: Axis| sizes.get(axis.0 as usize).map_or(1, |n| *n as u64);
        let name = |axis: Axis| stage.program.axis_name(axis).to_owned();
        let (length, tile, across) = tiles(&launch.schedule);
        let along = match launch.schedule {
            Schedule::Map(s) => Some(Axis(s.lane)),
            Schedule::Flash(_) => stage.kind().pairs().ok().map(|form| form.column),
            _ => stage.axis(),
        };
        let within = within_tiles(launch);
        let others = stage.outer_axes().iter().filter(|a| Some(*a) != along && !within.contains(a));
        let others: Vec<Axis> = others.collect();
        let names: Vec<String> = others.iter().map(|a| name(*a)).collect();
        Cut {
            along: Side { name: along.map_or(String::new(), name), size: along.map_or(1, size), tile: length },
            across: Side { name: names.join("·"), size: others.iter().map(|a| size(*a)).product(), tile: across },
            blocks: launch.grid.map(u64::from).iter().product(),
            carry: carry(&launch.schedule),
            reverse: stage.scan().is_some_and(|scan| scan.reverse),
            tile,
        }
    }
}

/// The axes that a tile holds whole: neither tiles along nor tiles across divide them.
fn within_tiles(launch: &Launch) -> Vec<Axis> {
    match launch.schedule {
        Schedule::Flash(_) => launch
            .stage
            .kind()
            .pairs()
            .map(|form| form.inner.iter().copied().chain(form.over).collect())
            .unwrap_or_default(),
        Schedule::Chunkwise(_) => launch.stage.kind().matrices().map_or(vec![], |form| vec![form.width, form.depth]),
        Schedule::ChunkwiseBackward(_) => {
            launch.stage.kind().matrices_back().map_or(vec![], |form| vec![form.states.width, form.states.depth])
        }
        _ => vec![],
    }
}

/// A tile's length along the scan, its parts, and how many rows or columns a block has at once.
fn tiles(schedule: &Schedule) -> (u64, Option<Tile>, u64) {
    let length = u64::from;
    match schedule {
        Schedule::Map(s) => {
            let tile = Tile { warps: s.warps, stretches: s.vectors, lanes: WARP, elements: s.vector };
            (length(s.tile()), Some(tile), 1)
        }
        Schedule::Rows(s) => {
            let Rows { row_warps, lanes, vector, vectors, .. } = *s;
            let tile = Tile { warps: row_warps, stretches: vectors, lanes, elements: vector };
            (length(s.tile()), Some(tile), length(s.block_rows()))
        }
        Schedule::LookBack(s) => {
            let LookBack { scan_warps, vectors, vector, .. } = *s;
            let tile = Tile { warps: scan_warps, stretches: vectors, lanes: WARP, elements: vector };
            (length(s.tile()), Some(tile), 1)
        }
        Schedule::Columns(s @ Columns { form: Form::Walk, .. }) => {
            (length(s.steps), None, length(s.threads() * s.vector))
        }
        Schedule::Columns(s) => (length(s.tile_rows()), None, length(s.tile_columns())),
        Schedule::StateSpace(s) => (length(s.steps), None, length(s.rows())),
        Schedule::StateSpaceBackward(s) => (length(s.steps), None, length(s.block_rows())),
        Schedule::Flash(s) => (length(s.columns), None, length(s.rows())),
        Schedule::Chunkwise(s) => (length(s.times()), None, 1),
        Schedule::ChunkwiseBackward(_) => (length(TIMES), None, 1),
    }
}

fn carry(schedule: &Schedule) -> Carry {
    match schedule {
        Schedule::Map(_) => Carry::None,
        Schedule::LookBack(_) | Schedule::Columns(Columns { form: Form::Ring, .. }) => Carry::LookBack,
        Schedule::ChunkwiseBackward(s) if s.sweep == Sweep::Gradients => Carry::None,
        _ => Carry::Kept,
    }
}
