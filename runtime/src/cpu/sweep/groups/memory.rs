//! Groups of lanes in memory of numbers or of truth values.

use super::number::{Number, Register};
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

    /// Loads n lanes, or one number for all of them.
    #[inline(always)]
    pub(super) fn load<const W: usize>(&self, dst: &mut Register<T, W>, (at, varies): (usize, bool), n: usize) {
        match (self, varies) {
            (From::Numbers(all), true) => match all[at..].first_chunk() {
                Some(group) if n == W => *dst = *group,
                _ => dst[..n].copy_from_slice(&all[at..][..n]),
            },
            (From::Numbers(all), false) => dst.fill(all[at]),
            (From::Flags(all), true) => dst.iter_mut().zip(&all[at..][..n]).for_each(|(dst, is)| *dst = T::flag(*is)),
            (From::Flags(all), false) => dst.fill(T::flag(all[at])),
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

    /// Stores n lanes, or the one number of all of them.
    #[inline(always)]
    pub(super) fn store<const W: usize>(&mut self, src: &Register<T, W>, (at, varies): (usize, bool), n: usize) {
        let n = if varies { n } else { 1 };
        match self {
            To::Numbers(all) => match all[at..].first_chunk_mut() {
                Some(group) if n == W => *group = *src,
                _ => all[at..][..n].copy_from_slice(&src[..n]),
            },
            To::Flags(all) => all[at..][..n].iter_mut().zip(src).for_each(|(to, x)| *to = x.is_set()),
        }
    }
}
