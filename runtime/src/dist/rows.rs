//! How the rows of a sequence are dealt to ranks.

use std::ops::Range;

use crate::layout::Layout;
use crate::{Device, Error, Tensor};

/// Which rows of a whole every rank holds, as chunks of neighbouring rows in the order of the rank's tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows(pub(super) Vec<Vec<Range<usize>>>);

impl Rows {
    /// Rank r holds the r-th part; the parts have these sizes.
    pub fn in_order(sizes: &[usize]) -> Rows {
        let mut start = 0;
        let part = |size: &usize| {
            start += size;
            std::iter::once(start - size..start).collect()
        };
        Rows(sizes.iter().map(part).collect())
    }

    /// The rows are cut into twice as many chunks as there are ranks, of which rank r holds the r-th from the start and the r-th
    /// from the end, in this order: in causal attention every rank then has as much work.
    ///
    /// ```
    /// use oplus::dist::Rows;
    ///
    /// assert_eq!(Rows::zigzag(12, 3).of(0), [0..2, 10..12]);
    /// assert_eq!(Rows::zigzag(12, 3).of(2), [4..6, 6..8]);
    /// ```
    pub fn zigzag(rows: usize, ranks: usize) -> Rows {
        let border = |chunk: usize| (rows as u128 * chunk as u128 / (2 * ranks as u128)) as usize;
        let chunk = |chunk: usize| border(chunk)..border(chunk + 1);
        Rows((0..ranks).map(|rank| vec![chunk(rank), chunk(2 * ranks - 1 - rank)]).collect())
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.0.len()
    }

    /// How many rows the whole has.
    pub fn total(&self) -> usize {
        self.0.iter().flatten().map(Range::len).sum()
    }

    /// The chunks of a rank.
    pub fn of(&self, rank: usize) -> &[Range<usize>] {
        self.0.get(rank).map_or(&[], Vec::as_slice)
    }

    /// How many rows a rank has.
    pub fn held(&self, rank: usize) -> usize {
        self.of(rank).iter().map(Range::len).sum()
    }

    /// Where the chunks of a rank lie in its tensor.
    pub(super) fn places(&self, rank: usize) -> Vec<Range<usize>> {
        let sizes: Vec<usize> = self.of(rank).iter().map(Range::len).collect();
        Rows::in_order(&sizes).0.into_iter().flatten().collect()
    }

    /// A rank's part of a whole tensor whose axis `axis` has all rows, where the whole is. On a GPU the rows go through the memory
    /// of the CPU.
    ///
    /// # Errors
    /// [`Error::View`] when the tensor does not have the axis or that many rows, errors of the device.
    pub fn deal(&self, whole: &Tensor, axis: usize, rank: usize) -> Result<Tensor, Error> {
        let source = whole.to_cpu()?;
        let part = empty(&source, axis, self.held(rank))?;
        for (place, chunk) in self.places(rank).into_iter().zip(self.of(rank)) {
            source.slice(axis, chunk.clone())?.write_to(&part.slice(axis, place)?)?;
        }
        part.to_device(&whole.device())
    }

    /// The whole of which every rank's part is given, on the device of the first.
    ///
    /// # Errors
    /// [`Error::Count`] unless there is one part for each rank, [`Error::View`] when a part does not have the axis or as many rows
    /// as its rank holds, errors of the device.
    pub fn undo(&self, parts: &[Tensor], axis: usize) -> Result<Tensor, Error> {
        let first = parts.first().filter(|_| parts.len() == self.ranks());
        let first = first.ok_or(Error::Count { what: "parts", expected: self.ranks(), found: parts.len() })?;
        let whole = empty(first, axis, self.total())?;
        for (rank, part) in parts.iter().enumerate() {
            let (part, held) = (part.to_cpu()?, self.held(rank));
            let rows = part.shape().get(axis).copied();
            if rows != Some(held) {
                let reason = format!("axis {axis} of the part of rank {rank} must have {held} rows");
                return Err(Error::View { shape: part.shape().to_vec(), reason });
            }
            for (place, chunk) in self.places(rank).into_iter().zip(self.of(rank)) {
                part.slice(axis, place)?.write_to(&whole.slice(axis, chunk.clone())?)?;
            }
        }
        whole.to_device(&first.device())
    }
}

/// A tensor of the CPU like another one, with that many rows along an axis.
fn empty(like: &Tensor, axis: usize, rows: usize) -> Result<Tensor, Error> {
    let mut shape = like.shape().to_vec();
    let len = shape.len();
    let no_axis = || Error::View { shape: like.shape().to_vec(), reason: format!("it has {len} axes, no axis {axis}") };
    *shape.get_mut(axis).ok_or_else(no_axis)? = rows;
    Layout::contiguous(&shape)?;
    Tensor::zeros(like.elem(), &shape, &Device::Cpu)
}
