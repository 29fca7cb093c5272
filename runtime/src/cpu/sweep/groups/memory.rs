//! Strips of lanes in memory of numbers or of truth values.

use super::lanes::{Lie, Location};
use super::number::Number;
use crate::cpu::turn::Rows;
use crate::cpu::values::{Slice, Values};

/// Memory of numbers or of truth values.
pub(super) enum From<'a, T> {
    Numbers(&'a [T]),
    Flags(&'a [bool]),
}

impl<'a, T: Number> From<'a, T> {
    pub(super) fn new(slice: Slice<'a>) -> Self {
        match slice {
            Slice::Bool(all) => From::Flags(all),
            _ => From::Numbers(slice.of()),
        }
    }

    /// Loads some steps of n lanes to registers that lie `pitch` apart. In memory the steps begin somewhere and have a stride, which may
    /// lead backwards.
    #[inline(always)]
    pub(super) fn load<const W: usize>(
        &self,
        to: &mut [T],
        pitch: usize,
        location: &Location<W>,
        (start, stride): (usize, usize),
        (steps, n): (usize, usize),
    ) {
        match (self, location.lie) {
            (From::Numbers(all), Lie::Apart) => {
                let starts = &location.starts[..n];
                T::turn(&Rows { starts, from: start, stride: stride as isize, steps, pitch }, to, all);
            }
            _ => (0..steps).for_each(|step| {
                let at = start.wrapping_add(step.wrapping_mul(stride));
                self.one(&mut to[step * pitch..][..W], location, at, n);
            }),
        }
    }

    /// Loads n lanes of a step.
    #[inline(always)]
    fn one<const W: usize>(&self, to: &mut [T], location: &Location<W>, step: usize, n: usize) {
        match (self, location.lie) {
            (From::Numbers(all), Lie::Together(at)) => to.fill(all[step.wrapping_add(at)]),
            (From::Numbers(all), Lie::Beside(at)) => match all[step.wrapping_add(at)..].first_chunk::<W>() {
                Some(lanes) if n == W => to.copy_from_slice(lanes),
                _ if n == 1 => to[0] = all[step.wrapping_add(at)],
                _ => to[..n].copy_from_slice(&all[step.wrapping_add(at)..][..n]),
            },
            (From::Flags(all), Lie::Together(at)) => to.fill(T::flag(all[step.wrapping_add(at)])),
            (From::Flags(all), Lie::Beside(at)) => {
                to.iter_mut().zip(&all[step.wrapping_add(at)..][..n]).for_each(|(to, is)| *to = T::flag(*is));
            }
            (From::Numbers(all), Lie::Apart) => {
                to.iter_mut().zip(&location.starts[..n]).for_each(|(to, at)| *to = all[step.wrapping_add(*at)]);
            }
            (From::Flags(all), Lie::Apart) => {
                to.iter_mut()
                    .zip(&location.starts[..n])
                    .for_each(|(to, at)| *to = T::flag(all[step.wrapping_add(*at)]));
            }
        }
    }
}

/// Memory of numbers or of truth values, to be written.
pub(super) enum To<'a, T> {
    Numbers(&'a mut [T]),
    Flags(&'a mut [bool]),
}

impl<'a, T: Number> To<'a, T> {
    pub(super) fn new(values: &'a mut Values) -> Self {
        match values {
            Values::Bool(all) => To::Flags(all),
            other => To::Numbers(other.all()),
        }
    }

    /// Stores some steps of n lanes from registers that lie `pitch` apart. In memory the steps begin somewhere and have a stride.
    #[inline(always)]
    pub(super) fn store<const W: usize>(
        &mut self,
        from: &[T],
        pitch: usize,
        location: &Location<W>,
        (start, stride): (usize, usize),
        (steps, n): (usize, usize),
    ) {
        match (self, location.lie) {
            (To::Numbers(all), Lie::Apart) => {
                let starts = &location.starts[..n];
                T::turn_back(&Rows { starts, from: start, stride: stride as isize, steps, pitch }, all, from);
            }
            (to, _) => (0..steps).for_each(|step| {
                to.one(&from[step * pitch..][..n], location, start.wrapping_add(step.wrapping_mul(stride)));
            }),
        }
    }

    /// Stores the lanes of a step, or the one number of all of them.
    #[inline(always)]
    fn one<const W: usize>(&mut self, from: &[T], location: &Location<W>, step: usize) {
        match (self, location.lie) {
            (To::Numbers(all), Lie::Together(at)) => all[step.wrapping_add(at)] = from[0],
            (To::Numbers(all), Lie::Beside(at)) => match all[step.wrapping_add(at)..].first_chunk_mut::<W>() {
                Some(lanes) if from.len() == W => lanes.copy_from_slice(from),
                _ if from.len() == 1 => all[step.wrapping_add(at)] = from[0],
                _ => all[step.wrapping_add(at)..][..from.len()].copy_from_slice(from),
            },
            (To::Flags(all), Lie::Together(at)) => all[step.wrapping_add(at)] = from[0].is_set(),
            (To::Flags(all), Lie::Beside(at)) => {
                all[step.wrapping_add(at)..].iter_mut().zip(from).for_each(|(to, x)| *to = x.is_set());
            }
            (To::Numbers(all), Lie::Apart) => {
                location.starts.iter().zip(from).for_each(|(at, x)| all[step.wrapping_add(*at)] = *x);
            }
            (To::Flags(all), Lie::Apart) => {
                location.starts.iter().zip(from).for_each(|(at, x)| all[step.wrapping_add(*at)] = x.is_set());
            }
        }
    }
}
