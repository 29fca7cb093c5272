//! How a launch cuts its work into tiles, as the picture of a plan shows it.

use oplus_codegen::plan::Launch;
use oplus_codegen::schedules::picture::Picture;
pub(super) use oplus_codegen::schedules::picture::{Carry, Tile};
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
    /// The number of a tile in the order of the scan, and the block that computes it; none where several blocks share a row.
    pub(super) fn tile_and_block(&self, row: u64, tile: u64) -> (u64, Option<u64>) {
        let number = row * self.along.tiles() + if self.reverse { self.along.tiles() - 1 - tile } else { tile };
        let block = if self.carry == Carry::Kept { row } else { number } % self.blocks.max(1);
        (number, (!self.shares_rows()).then_some(block))
    }

    /// Whether several blocks share a row: its time is in segments, or its columns are divided.
    pub(super) fn shares_rows(&self) -> bool {
        self.carry == Carry::Kept && self.blocks > self.across.tiles()
    }

    pub(super) fn of(launch: &Launch) -> Cut {
        let (stage, sizes) = (&*launch.stage, launch.sizes());
        let size = |axis: Axis| sizes.get(axis.0 as usize).map_or(1, |n| *n as u64);
        let name = |axis: Axis| stage.program.axis_name(axis).to_owned();
        let Picture { along, within, length, across, tile, carry } = launch.schedule.picture(stage);
        let others = stage.outer_axes().iter().filter(|a| Some(*a) != along && !within.contains(a));
        let others: Vec<Axis> = others.collect();
        let names: Vec<String> = others.iter().map(|a| name(*a)).collect();
        Cut {
            along: Side { name: along.map_or(String::new(), name), size: along.map_or(1, size), tile: length },
            across: Side { name: names.join("·"), size: others.iter().map(|a| size(*a)).product(), tile: across },
            blocks: launch.grid.map(u64::from).iter().product(),
            carry,
            reverse: stage.scan().is_some_and(|scan| scan.reverse),
            tile,
        }
    }
}
