//! The tiles that a launch cuts its work into, as the picture of a plan shows them.

use oplus_dsl::ir::Axis;

use crate::plan::Launch;
use crate::schedules::picture::Picture;
pub use crate::schedules::picture::{Carry, Tile};

/// The tiles that a picture shows along the scan and across it.
pub const SHOWN: (u64, u64) = (6, 4);

/// An axis, or several that count as one, in tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The axes' names.
    pub name: String,
    /// The number of elements.
    pub size: u64,
    /// The elements of a tile.
    pub tile: u64,
}

impl Side {
    /// The number of tiles; at least one, so that there is something to draw.
    pub fn tiles(&self) -> u64 {
        self.size.div_ceil(self.tile.max(1)).max(1)
    }

    /// The numbers of the tiles that a picture with room for `most` shows: the first ones and the last. `None` stands for those
    /// left out.
    pub fn shown(&self, most: u64) -> Vec<Option<u64>> {
        let tiles = self.tiles();
        if tiles <= most {
            return (0..tiles).map(Some).collect();
        }
        (0..most - 2).map(Some).chain([None, Some(tiles - 1)]).collect()
    }
}

/// A launch's work: tiles along an axis, and across it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Along the scan.
    pub along: Side,
    /// Across it.
    pub across: Side,
    /// The number of blocks that share the tiles.
    pub blocks: u64,
    /// The carry from tile to tile.
    pub carry: Carry,
    /// Whether the scan goes from the end to the start.
    pub reverse: bool,
    /// A tile's parts, where the schedule has them.
    pub tile: Option<Tile>,
}

impl Cut {
    /// The number of a tile in the order of the scan, and the block that computes it; none where several blocks share a row.
    pub fn tile_and_block(&self, row: u64, tile: u64) -> (u64, Option<u64>) {
        let number = row * self.along.tiles() + if self.reverse { self.along.tiles() - 1 - tile } else { tile };
        let block = if self.carry == Carry::Kept { row } else { number } % self.blocks.max(1);
        (number, (!self.shares_rows()).then_some(block))
    }

    /// Whether several blocks share a row: its time is in segments, or its columns are divided.
    pub fn shares_rows(&self) -> bool {
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
            reverse: launch.schedule.goes_back(stage),
            tile,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(size: u64, tile: u64) -> Side {
        Side { name: "L".into(), size, tile }
    }

    #[test]
    fn of_many_tiles_the_first_and_the_last_are_shown() {
        assert_eq!(side(100, 10).shown(4), [Some(0), Some(1), None, Some(9)]);
        assert_eq!(side(31, 10).shown(4), [0, 1, 2, 3].map(Some));
        assert_eq!(side(0, 10).shown(4), [Some(0)]);
    }
}
