//! The sizes that fit tiles of a recurrence of matrices.

use super::{Chunkwise, KeyParts, heads, prepared};
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::problem::Problem;
use crate::stage::kind::MatrixRecurrence;

/// The least depth that tiles of every schedule by chunks may have.
const LEAST_DEPTH: i64 = 32;

/// Tiles of a recurrence of matrices, filled or padded, whose keys and values are not displaced. Where tiles are padded, a width of
/// several tiles may end in the middle of one.
pub(crate) struct Matrices {
    pub depth: u32,
    pub width: u32,
    pub padded: bool,
    pub wide: bool,
    pub vector: u32,
}

impl Matrices {
    /// Whether the sizes of a call fit.
    pub(crate) fn fit(&self, form: &MatrixRecurrence, problem: &Problem<'_>) -> Result<(), Misfit> {
        let (stage, vector) = (problem.stage, i64::from(self.vector));
        let is_deep = problem.size(form.depth) == i64::from(self.depth);
        for (axis, places) in [(form.depth, self.depth), (form.width, self.width)] {
            let (size, places) = (problem.size(axis), i64::from(places));
            let several = self.wide && axis == form.width;
            let wanted = match self.padded {
                true if several && size <= places => Wanted::MoreThan(places),
                // With several slices, only the least depth that suffices is taken.
                true if self.wide && !several && places > LEAST_DEPTH && size * 2 <= places => {
                    Wanted::MoreThan(places / 2)
                }
                // Filled tiles have schedules of their own.
                true if several && size % places == 0 && is_deep => Wanted::NoMultipleOf(places),
                true if !several && size > places => Wanted::AtMost(places),
                false if several && (size <= places || size % places != 0) => Wanted::SeveralTimes(places),
                false if !several && size != places => Wanted::Exactly(places),
                _ if size % vector != 0 => Wanted::MultipleOf(vector),
                _ => continue,
            };
            return Err(Misfit::Size { axis: stage.program.axis_name(axis).to_owned(), size, wanted });
        }
        let displaced = [form.key, form.value].into_iter().any(|param| !stage.views[param as usize].is_empty());
        if displaced { Err(Misfit::DisplacedTile) } else { Ok(()) }
    }
}

/// Times are counted in 31 bits, with those of the chunks in flight.
pub(crate) fn counted(times: i64, ahead: u32) -> Result<(), Misfit> {
    let most = i64::from(i32::MAX) - i64::from(ahead);
    if times > most { Err(Misfit::TooMany { count: times as u64, what: "times" }) } else { Ok(()) }
}

/// Whether the sizes of a call fit a schedule.
pub(super) fn fits(schedule: &Chunkwise, problem: &Problem<'_>) -> Result<(), Misfit> {
    let form = problem.stage.kind().matrices()?;
    let Chunkwise { depth, padded, wide, vector, stages, .. } = *schedule;
    Matrices { depth, width: schedule.width(), padded, wide, vector }.fit(form, problem)?;
    let views = &problem.stage.views;
    if form.readout.as_ref().is_some_and(|readout| !views[readout.query as usize].is_empty()) {
        return Err(Misfit::DisplacedTile);
    }
    if let Some(axis) = heads::axis(problem.stage, form).filter(|_| schedule.heads > 1) {
        let (size, several) = (problem.size(axis), i64::from(schedule.heads));
        if size % several != 0 {
            let axis = problem.stage.program.axis_name(axis).to_owned();
            return Err(Misfit::Size { axis, size, wanted: Wanted::MultipleOf(several) });
        }
    }
    if schedule.key_parts != KeyParts::Divided {
        problem.is_without_empty_axes()?;
        let chunks = prepared::blocks(problem.stage, form, schedule, |axis| problem.size(axis));
        let chunks = chunks.filter(|chunks| prepared::scratch(schedule, *chunks).is_some());
        Misfit::count(chunks.ok_or(Misfit::TooManyStates)?, "chunks")?;
    }
    counted(problem.size(form.time), schedule.times() * stages)
}
