//! Estimates of time, and the terms that all schedules share.

use super::constants::Constants;
use crate::words::counted;

/// An estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Microseconds.
    pub micros: f64,
    /// The estimate in words.
    pub why: String,
}

/// The bytes that a launch moves through memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Bytes moved: whole sectors where neighbouring lanes are apart.
    pub moved: f64,
    /// Bytes per microsecond of a multiprocessor.
    pub one: f64,
    /// Multiprocessors.
    pub multiprocessors: f64,
}

impl Memory {
    /// Microseconds in which all bytes go through memory.
    pub fn micros(&self) -> f64 {
        self.moved / (self.one * self.multiprocessors)
    }

    /// Blocks of the multiprocessor that has the most of them. Where there are many, multiprocessors have nearly equal shares.
    pub(crate) fn share_of_one(&self, blocks: f64) -> f64 {
        let mean = blocks / self.multiprocessors;
        if mean > 8.0 { mean } else { mean.ceil() }
    }
}

/// Iterations or steps of the blocks that a multiprocessor has at once, in words.
pub(crate) fn of_blocks(iterations: f64, noun: &str, resident: f64) -> String {
    format!("{} of {} per multiprocessor", counted(iterations, noun), counted(format!("{resident:.0}"), "block"))
}

/// The tiles of a persistent kernel.
pub(crate) struct Tiles {
    /// Their number.
    pub count: u64,
    /// Elements of each.
    pub elements: u64,
    /// Points of the stage, and its rows.
    pub points: u64,
    pub rows: u64,
    /// Microseconds that filling the pipeline and the first look-back take.
    pub start: f64,
    /// Microseconds that every tile takes besides, and the reason in words.
    pub more: (f64, String),
}

impl Tiles {
    /// The estimate of persistent blocks, which take one tile after another; a tile that is not full costs as much as a full one.
    pub(crate) fn cost(&self, memory: &Memory, constants: &Constants) -> Cost {
        let least = (if self.rows > 1 { constants.row_tile } else { constants.tile }) + self.more.0;
        let points = self.points.max(1) as f64;
        let tile = (memory.moved / points * self.elements as f64 / memory.one).max(least);
        let count = self.count as f64;
        let waves = (count / memory.multiprocessors).ceil();
        // The first tile of every block is loaded with nothing to do meanwhile.
        let micros = self.start + (waves + 1.0) * tile;
        Cost { micros, why: format!("{} in {}{}", counted(count, "tile"), counted(waves, "wave"), self.more.1) }
    }
}
