//! Shapes and strides: which element of a memory an index names.

use std::ops::Range;

use crate::Error;

/// The map from indices i[0], i[1], … to the element `offset + Σ i[k]·strides[k]` of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of every axis.
    pub(crate) shape: Vec<usize>,
    /// Distance between neighbours along every axis, in elements.
    pub(crate) strides: Vec<i64>,
    /// Element of the index 0, 0, ….
    pub(crate) offset: usize,
}

impl Layout {
    /// Row-major order: the last axis has stride 1.
    pub(crate) fn contiguous(shape: &[usize]) -> Result<Layout, Error> {
        let too_large = || Error::TooLarge { shape: shape.to_vec() };
        let mut strides = vec![0; shape.len()];
        let mut step = 1_i64;
        for (stride, &size) in strides.iter_mut().zip(shape).rev() {
            *stride = step;
            step = extended(step, size).ok_or_else(too_large)?;
        }
        Ok(Layout { shape: shape.to_vec(), strides, offset: 0 })
    }

    /// A layout with strides of the caller's choice; every index must fall into a memory of `len` elements.
    pub(crate) fn strided(shape: &[usize], strides: &[i64], offset: usize, len: usize) -> Result<Layout, Error> {
        let fail = |reason: String| Error::View { shape: shape.to_vec(), reason };
        if shape.len() != strides.len() {
            return Err(fail(format!("{} strides for {} axes", strides.len(), shape.len())));
        }
        // Elements that are named more than once count each time: kernels have an index for each.
        if shape.iter().try_fold(1, |n, &size| extended(n, size)).is_none() {
            return Err(Error::TooLarge { shape: shape.to_vec() });
        }
        let (low, high) =
            extent(shape, strides, offset).ok_or_else(|| fail(format!("strides {strides:?} overflow")))?;
        let empty = shape.contains(&0);
        if !empty && (low < 0 || high >= len as i128) {
            let reason = format!("strides {strides:?} from element {offset} reach elements {low} … {high} of {len}");
            return Err(fail(reason));
        }
        Ok(Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset: if empty { 0 } else { offset } })
    }

    /// Number of indices.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The least range of elements that holds every index; empty when there is none.
    pub(crate) fn span(&self) -> Range<usize> {
        if self.shape.contains(&0) {
            return self.offset..self.offset;
        }
        let (low, high) = extent(&self.shape, &self.strides, self.offset).unwrap_or((0, -1));
        low as usize..(high + 1) as usize
    }

    /// Whether the elements lie in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut step = 1;
        self.len() == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
                let fits = size == 1 || stride == step;
                step *= size as i64;
                fits
            })
    }

    /// Whether two indices may name one element. Exact for nested strides, which are all that views produce.
    pub(crate) fn overlaps_itself(&self) -> bool {
        let mut axes: Vec<(u64, u64)> = self
            .shape
            .iter()
            .zip(&self.strides)
            .filter(|(n, _)| **n > 1)
            .map(|(&n, &s)| (s.unsigned_abs(), n as u64))
            .collect();
        axes.sort_unstable();
        let mut reach = 0_u64;
        self.len() > 0
            && axes.iter().any(|&(stride, size)| {
                let clash = stride <= reach;
                reach = reach.saturating_add(stride.saturating_mul(size - 1));
                clash
            })
    }

    /// The axes in another order: axis k of the result is axis `order[k]`.
    pub(crate) fn permute(&self, order: &[usize]) -> Result<Layout, Error> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape.len()) {
            return Err(self.no_view(format!("{order:?} is not an order of its axes")));
        }
        let shape = order.iter().map(|&k| self.shape[k]).collect();
        let strides = order.iter().map(|&k| self.strides[k]).collect();
        Ok(Layout { shape, strides, offset: self.offset })
    }

    /// The part of one axis with indices in `range`.
    pub(crate) fn slice(&self, axis: usize, range: Range<usize>) -> Result<Layout, Error> {
        if axis >= self.shape.len() || range.start > range.end || range.end > self.shape[axis] {
            return Err(self.no_view(format!("no indices {range:?} along axis {axis}")));
        }
        let mut part = self.clone();
        part.shape[axis] = range.len();
        if part.len() > 0 {
            part.offset = (self.offset as i64 + range.start as i64 * self.strides[axis]) as usize;
        }
        Ok(part)
    }

    /// Calls `f` with the first element and the length of every run of consecutive elements, in row-major order.
    pub(crate) fn for_each_run(&self, mut f: impl FnMut(usize, usize)) {
        if self.len() == 0 {
            return;
        }
        let (outer, run) = match (self.shape.split_last(), self.strides.last()) {
            (Some((&size, outer)), Some(&1)) => (outer, size),
            _ => (&self.shape[..], 1),
        };
        let mut index = vec![0; outer.len()];
        let mut at = self.offset as i64;
        loop {
            f(at as usize, run);
            // Like an odometer: the last axis that can moves on, those behind it go back to 0.
            let mut axis = outer.len();
            loop {
                let Some(k) = axis.checked_sub(1) else { return };
                axis = k;
                // Behind the last index of an axis there may be no number: its stride is taken back then.
                at = at.wrapping_add(self.strides[k]);
                index[k] += 1;
                if index[k] < outer[k] {
                    break;
                }
                at = at.wrapping_sub((index[k] as i64).wrapping_mul(self.strides[k]));
                index[k] = 0;
            }
        }
    }

    pub(crate) fn no_view(&self, reason: String) -> Error {
        Error::View { shape: self.shape.clone(), reason }
    }
}

/// Elements that a tensor may have: so many of eight bytes have 63-bit addresses, and 64-bit indices count them rounded up to
/// whole tiles.
const MOST_ELEMENTS: i64 = i64::MAX / 16;

/// The product of a number of elements and a size, an empty axis counted as one element; `None` when it is too large.
fn extended(elements: i64, size: usize) -> Option<i64> {
    elements.checked_mul(i64::try_from(size.max(1)).ok()?).filter(|&n| n <= MOST_ELEMENTS)
}

/// The least and the greatest element that an index of a shape without zeros names; `None` when they overflow.
fn extent(shape: &[usize], strides: &[i64], offset: usize) -> Option<(i128, i128)> {
    let start = offset as i128;
    shape.iter().zip(strides).try_fold((start, start), |(low, high), (&size, &stride)| {
        let reach = i128::try_from(size.saturating_sub(1)).ok()?.checked_mul(i128::from(stride))?;
        let (low, high) = (low + reach.min(0), high + reach.max(0));
        (low.abs() < 1 << 62 && high < 1 << 62).then_some((low, high))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(layout: &Layout) -> Vec<usize> {
        let mut all = Vec::new();
        layout.for_each_run(|at, n| all.extend(at..at + n));
        all
    }

    #[test]
    fn runs_follow_row_major_order() {
        let x = Layout::contiguous(&[2, 3, 4]).unwrap();
        assert_eq!(elements(&x), (0..24).collect::<Vec<_>>());
        let t = x.permute(&[2, 0, 1]).unwrap();
        let expected: Vec<usize> =
            (0..4).flat_map(|k| (0..2).flat_map(move |i| (0..3).map(move |j| 12 * i + 4 * j + k))).collect();
        assert_eq!(elements(&t), expected);
        assert_eq!(elements(&x.slice(1, 1..3).unwrap()), [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]);
    }

    #[test]
    fn a_scalar_is_one_element_and_a_zero_axis_none() {
        assert_eq!(elements(&Layout::contiguous(&[]).unwrap()), [0]);
        let empty = Layout::contiguous(&[3, 0, 2]).unwrap();
        assert_eq!((elements(&empty), empty.len(), empty.span()), (vec![], 0, 0..0));
        assert!(empty.is_contiguous() && !empty.overlaps_itself());
    }

    #[test]
    fn negative_strides_stay_inside_the_memory() {
        let reversed = Layout::strided(&[4], &[-1], 3, 4).unwrap();
        assert_eq!((elements(&reversed), reversed.span()), (vec![3, 2, 1, 0], 0..4));
        assert!(Layout::strided(&[4], &[-1], 2, 4).is_err());
        assert!(Layout::strided(&[4], &[1], 1, 4).is_err());
        assert!(Layout::strided(&[2, 2], &[1], 0, 4).is_err());
        assert!(Layout::strided(&[3, 3], &[i64::MAX, i64::MAX], 0, 4).is_err());
    }

    #[test]
    fn an_element_named_twice_is_an_overlap() {
        let overlaps =
            |shape: &[usize], strides: &[i64]| Layout::strided(shape, strides, 8, 64).unwrap().overlaps_itself();
        assert!(overlaps(&[3], &[0]));
        assert!(overlaps(&[3, 4], &[3, 1]));
        assert!(!overlaps(&[3, 4], &[4, 1]));
        assert!(!overlaps(&[3, 4], &[-1, 3]));
        assert!(!overlaps(&[1, 4], &[0, 1]));
    }

    #[test]
    fn shapes_without_memory_are_refused() {
        assert!(matches!(Layout::contiguous(&[1 << 40, 1 << 40]), Err(Error::TooLarge { .. })));
        assert!(matches!(Layout::contiguous(&[usize::MAX, 0]), Err(Error::TooLarge { .. })));
    }

    /// Strides of 0 take no memory, but every index counts.
    #[test]
    fn views_with_more_indices_than_can_be_counted_are_refused() {
        let repeated = |shape: &[usize]| Layout::strided(shape, &vec![0; shape.len()], 0, 1);
        for shape in [&[1 << 40, 1 << 40][..], &[1 << 60], &[1 << 62], &[usize::MAX], &[1 << 32, 0, 1 << 32]] {
            let refused = repeated(shape).unwrap_err();
            assert!(matches!(&refused, Error::TooLarge { shape: named } if named == shape), "{refused}");
            assert!(matches!(Layout::contiguous(shape), Err(Error::TooLarge { .. })));
        }
        for shape in [&[1 << 31][..], &[(1 << 31) + 1], &[1 << 32, 1 << 26], &[1 << 59 >> 1, 1], &[1 << 58, 0]] {
            let view = repeated(shape).unwrap();
            let count = shape.iter().map(|&n| n as u128).product::<u128>();
            assert_eq!((view.len() as u128, view.span().len()), (count, usize::from(count > 0)));
            assert_eq!(view.overlaps_itself(), count > 1);
            assert_eq!(Layout::contiguous(shape).unwrap().len() as u128, count);
        }
    }

    #[test]
    fn strides_without_a_second_index_may_be_any() {
        for stride in [i64::MIN, i64::MAX] {
            let one = Layout::strided(&[1, 3, 1], &[stride, 1, stride], 1, 4).unwrap();
            assert!(one.is_contiguous() && !one.overlaps_itself());
            assert_eq!((one.span(), elements(&one)), (1..4, vec![1, 2, 3]));
            assert!(Layout::strided(&[2, 3], &[stride, 1], 0, 3).is_err());
        }
    }

    #[test]
    fn an_axis_that_does_not_exist_is_refused() {
        let x = Layout::contiguous(&[2, 6]).unwrap();
        assert!(matches!(x.permute(&[0, 0]), Err(Error::View { .. })));
        assert!(matches!(x.slice(2, 0..1), Err(Error::View { .. })));
    }
}
