//! What outputs read that does not change in time: found once for every piece of a copy thread.

use super::global::{Elements, Global};
use super::{CHUNK, StateSpaceKernel};
use crate::build::Builder;
use crate::tile::Operand;
use std::collections::HashMap;

/// The registers that constants of outputs may take.
const MOST_CONSTANTS: usize = 16;

/// Elements that do not change in time, by output and piece of the thread.
#[derive(Default)]
pub(crate) struct Constants(HashMap<(usize, usize), Elements>);

impl Constants {
    pub(super) fn at(&self, output: usize, piece: usize) -> Option<&Elements> {
        self.0.get(&(output, piece))
    }
}

impl StateSpaceKernel<'_> {
    /// What outputs read that does not change in time, where there are registers for it.
    pub(super) fn constants_of_outputs(&self, b: &mut Builder, thread: Operand) -> Constants {
        let mut constants = Constants::default();
        // Segments of time take registers as well, of which many threads have few.
        let is_short = self.is_crowded() && self.schedule.segmented && self.schedule.vector <= CHUNK;
        if is_short || self.spares_registers() {
            return constants;
        }
        for k in self.body_outputs() {
            let is_constant = |param: &u32| !self.stage.program.params[*param as usize].axes.contains(&self.scan.axis);
            let params: Vec<u32> = self.read_by_output(k).into_iter().filter(is_constant).collect();
            let pieces = self.few_pieces(b, self.output_shape(k), thread).unwrap_or_default();
            if pieces.len() * params.len() > MOST_CONSTANTS {
                continue;
            }
            for (i, piece) in pieces.iter().enumerate() {
                let mut global = Global::timeless(self, piece.row, Operand::i32(0));
                global.preload(b, &params);
                constants.0.insert((k, i), global.elements_loaded());
            }
        }
        constants
    }
}
