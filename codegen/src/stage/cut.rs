//! Dividing a program into stages.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, Program, Value};
use oplus_dsl::unfused::unfused;

use super::Cut;
use super::assemble::assemble;
use super::contraction::contractions;
use super::cutter::{Cutter, Storing};
use super::error::CutError;
use super::group::group;
use super::limits;
use super::partial_sums::{WithPartialSums, with_partial_sums};
use super::recurrences::{Decays, cut_opposite, cut_recurrences, stores_decays};
use crate::passes;

/// Cuts a verified, instantiated program into stages without contractions: see the [module documentation](super).
pub fn cut(program: &Program) -> Result<Cut, CutError> {
    cut_plain(&prepare(program)?)
}

/// [`cut`] of a program as it is written: no sum becomes a product, no exponential a power of two, and a product is rounded
/// before it is added.
pub fn cut_ordered(program: &Program) -> Result<Cut, CutError> {
    if program.is_generic() {
        return Err(CutError::Generic);
    }
    let program = passes::run(&passes::ORDERED, program)?;
    limits::check(&program)?;
    let mut cut = cut_plain(&program)?;
    for stage in &mut cut.stages {
        *stage = stage.with_program(unfused(&stage.program));
    }
    Ok(cut)
}

/// [`cut`] of a program that is prepared.
pub(super) fn cut_plain(program: &Program) -> Result<Cut, CutError> {
    if program.has_matrix_scans() {
        return cut_recurrences(program, Decays::Stored, |part| cut_with(part, BTreeSet::new(), None));
    }
    cut_with(program, BTreeSet::new(), None)
}

/// [`cut_plain`] with fewer stages: final states over fewer axes are taken in the stage of those over more, where that needs no other states.
pub(super) fn cut_uneven(program: &Program) -> Result<Cut, CutError> {
    if program.has_matrix_scans() {
        return cut_plain(program);
    }
    let mut cutter = Cutter::new(program, BTreeSet::new(), None, Storing::Whole);
    cutter.joins_narrower = true;
    cutter.resolve_all();
    assembled(cutter)
}

/// [`cut_plain`] with recurrences of matrices that compute the exponentials of their decays; `None` if [`cut_plain`] has these already.
pub(super) fn cut_decayed(program: &Program) -> Result<Option<Cut>, CutError> {
    if !stores_decays(program) {
        return Ok(None);
    }
    recurrences_with_decays(program).map(Some)
}

/// [`cut_plain`] of a program with recurrences of matrices, which compute the exponentials of their decays.
pub(super) fn recurrences_with_decays(program: &Program) -> Result<Cut, CutError> {
    cut_recurrences(program, Decays::Computed, |part| cut_with(part, BTreeSet::new(), None))
}

/// [`cut_plain`] with less to store: a value that depends on several states is not stored itself where it is a map of values over
/// fewer axes; those are stored. `None` if there is no such value.
pub(super) fn cut_narrow(program: &Program) -> Result<Option<Cut>, CutError> {
    let mut cutter = Cutter::new(program, BTreeSet::new(), None, Storing::Narrow { is_narrower: false });
    cutter.resolve_all();
    if cutter.storing == (Storing::Narrow { is_narrower: false }) { Ok(None) } else { assembled(cutter).map(Some) }
}

/// A cut of the gradient of a recurrence of matrices with one stage for states and cotangents; `None` if the program is no such gradient.
pub(super) fn matrices_back(program: &Program) -> Result<Option<Cut>, CutError> {
    cut_opposite(program, |part| cut_with(part, BTreeSet::new(), None))
}

/// [`cut_plain`] with sums over a state axis kept with their scans, if there are such.
pub(super) fn cut_kept(program: &Program) -> Result<Cut, CutError> {
    cut_with(program, contractions(program), None)
}

/// [`cut`] with sums over a state axis kept with their scans; `None` if the program has none.
pub fn cut_contracted(program: &Program) -> Result<Option<Cut>, CutError> {
    contracted(&prepare(program)?)
}

/// [`cut_contracted`] of a program that is prepared.
pub(super) fn contracted(program: &Program) -> Result<Option<Cut>, CutError> {
    let sums = contractions(program);
    if sums.is_empty() { Ok(None) } else { cut_with(program, sums, None).map(Some) }
}

/// [`cut`] with partial sums over columns, taken by the kernel of the states; `None` if the program has none.
pub fn cut_partial_sums(program: &Program) -> Result<Option<Cut>, CutError> {
    partial_sums(&prepare(program)?)
}

/// [`cut_partial_sums`] of a program that is prepared.
pub(super) fn partial_sums(program: &Program) -> Result<Option<Cut>, CutError> {
    let Some(WithPartialSums { program, axis, partial_sums, sums }) = with_partial_sums(program) else {
        return Ok(None);
    };
    cut_with(&program, sums, Some((axis, partial_sums))).map(Some)
}

/// A program after all [passes](crate::passes), if it is not too large.
pub(super) fn prepare(program: &Program) -> Result<Program, CutError> {
    if program.is_generic() {
        return Err(CutError::Generic);
    }
    limits::check(program)?;
    Ok(passes::run(&passes::PASSES, program)?)
}

/// `partial_sums` are their axis and the values stored along it.
fn cut_with(
    program: &Program,
    sums: BTreeSet<Value>,
    partial_sums: Option<(Axis, Vec<Value>)>,
) -> Result<Cut, CutError> {
    let (partial_axis, stored) = partial_sums.map_or((None, vec![]), |(axis, stored)| (Some(axis), stored));
    let mut cutter = Cutter::new(program, sums, partial_axis, Storing::Whole);
    stored.into_iter().for_each(|value| _ = cutter.add_buffer(value));
    cutter.resolve_all();
    assembled(cutter)
}

/// The stages of a cut whose groups are known.
fn assembled(cutter: Cutter<'_>) -> Result<Cut, CutError> {
    let groups = group(&cutter);
    let stages = groups.iter().enumerate().map(|(i, g)| assemble(&cutter, g, i, groups.len()));
    let stages = stages.collect::<Result<_, _>>()?;
    Ok(Cut { stages, partial_axis: cutter.partial_axis, buffers: cutter.buffers })
}
