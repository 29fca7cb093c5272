//! The problem that a schedule is to solve: a stage for the sizes and strides of a call, on a device.

use oplus_dsl::ir::Axis;

use super::constants::Constants;
use super::misfit::Misfit;
use crate::stage::{Bound, Stage};
use crate::target::Target;

/// A stage, the sizes and layouts of a call, the device, and what estimates are made with.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The stage.
    pub stage: &'a Stage,
    /// Its sizes and layouts.
    pub bound: &'a Bound,
    /// The device.
    pub target: &'a Target,
    /// The constants of the cost model.
    pub constants: &'a Constants,
}

impl<'a> Problem<'a> {
    /// The size of an axis.
    pub fn size(&self, axis: Axis) -> i64 {
        self.bound.size(axis)
    }

    /// Rows: points of the outer axes.
    pub fn rows(&self) -> u64 {
        self.bound.count(self.stage.outer_axes().iter())
    }

    /// Elements of a row; of one of several sequences, those that it has on average.
    pub fn length(&self) -> u64 {
        let of_sequence = self.stage.sequences().map(|sequences| sequences.length(&self.bound.sizes));
        of_sequence.unwrap_or_else(|| self.stage.axis().map_or(1, |axis| self.bound.size(axis) as u64))
    }

    /// Whether no axis has size 0.
    pub(crate) fn is_without_empty_axes(&self) -> Result<(), Misfit> {
        let axes = &self.stage.program.axes;
        match axes.iter().zip(&self.bound.sizes).find(|(_, size)| **size == 0) {
            Some((axis, _)) => Err(Misfit::Empty { axis: axis.clone() }),
            None => Ok(()),
        }
    }

    /// The stage with other sizes.
    pub fn with<'b>(&self, bound: &'b Bound) -> Problem<'b>
    where
        'a: 'b,
    {
        Problem { bound, ..*self }
    }
}
