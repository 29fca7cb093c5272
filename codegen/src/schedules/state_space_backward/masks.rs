//! Masks: comparisons that keep states, rows and steps that do not exist from changing states and sums.

use super::tiles::Tiles;
use super::tiles::fill;
use super::zero::Fill;
use crate::schedules::{Pass, StateSpaceBackward};
use crate::stage::kind::{BackwardScan, Sum};
use oplus_dsl::ir::{Axis, Value};

/// The values that need a comparison.
pub(super) struct Masks {
    /// Whether a step that does not exist would change states or cotangents.
    pub steps: bool,
    /// Whether a state, a row or a step that does not exist would count in each sum.
    pub sums: Vec<bool>,
    pub row_sums: Vec<bool>,
    pub state_totals: Vec<bool>,
    pub row_totals: Vec<bool>,
}

impl Masks {
    pub(super) fn of(form: &BackwardScan, tiles: &Tiles, schedule: &StateSpaceBackward) -> Masks {
        let at = |value: Value, axis: Axis| fill(form, tiles, value, axis);
        let counts = |sums: &[Sum], axis: Option<Axis>| {
            let counts = |sum: &Sum| axis.is_some_and(|axis| at(sum.element, axis) != Fill::Zero);
            sums.iter().map(counts).collect::<Vec<_>>()
        };
        let forward = at(form.after, form.time) == Fill::Before;
        let back = at(form.decay, form.time) == Fill::One && at(form.gain, form.time) == Fill::Zero;
        let identity = match schedule.pass {
            Pass::Ends | Pass::Save => forward,
            Pass::Carry => back,
            Pass::Walk | Pass::Sum => forward && back,
        };
        Masks {
            steps: !identity,
            sums: counts(&form.sums, Some(form.state).filter(|_| schedule.padded)),
            row_sums: counts(&form.row_sums, form.row),
            state_totals: counts(&form.state_totals, Some(form.time)),
            row_totals: counts(&form.row_totals, Some(form.time)),
        }
    }
}
