//! The lanes of a sweep in groups, and where they lie.

use crate::cpu::sweep::runs::Runs;

/// With fewer lanes that lie side by side, groups are made of lanes wherever they lie.
const RUN: usize = 32;

/// The lanes of a sweep.
pub(super) struct Lanes<'a> {
    sizes: &'a [usize],
    /// Runs of lanes that lie side by side in everything, or one of all lanes.
    runs: Runs,
    is_apart: bool,
}

/// Some lanes.
pub(super) struct Group<'a> {
    lanes: &'a Lanes<'a>,
    /// The run, by the indices of the axes around it.
    at: &'a [usize],
    /// The first lane of the run.
    first: usize,
    pub(super) n: usize,
}

/// Where the lanes of a group lie.
pub(super) struct Location<const W: usize> {
    pub(super) lie: Lie,
    /// Where each lane lies, if they lie apart.
    pub(super) starts: [usize; W],
}

/// How the lanes of a group lie.
#[derive(Clone, Copy)]
pub(super) enum Lie {
    /// All of them here.
    Together(usize),
    /// Side by side from here on.
    Beside(usize),
    Apart,
}

impl<const W: usize> Location<W> {
    /// A place for a group to find.
    pub(super) fn new() -> Location<W> {
        Location { lie: Lie::Apart, starts: [0; W] }
    }
}

impl<'a> Lanes<'a> {
    /// The lanes along some axes; `strides` are those of everything along them. `None` if there are no lanes.
    pub(super) fn new(sizes: &'a [usize], strides: &[&[isize]]) -> Option<Lanes<'a>> {
        let runs = Runs::new(sizes, strides)?;
        let is_apart = runs.len < RUN && runs.len < sizes.iter().product();
        Some(Lanes { sizes, runs: if is_apart { Runs::of_all(sizes) } else { runs }, is_apart })
    }

    /// The most lanes that a group may have.
    pub(super) fn most(&self) -> usize {
        self.runs.len
    }

    /// Whether all lanes are in one group of at most so many.
    pub(super) fn are_one_group(&self, most: usize) -> bool {
        self.runs.len <= most && self.runs.len == self.sizes.iter().product()
    }

    /// Calls `visit` for every group of at most W lanes.
    #[inline(always)]
    pub(super) fn each<const W: usize>(&self, mut visit: impl FnMut(&Group<'_>)) {
        self.runs.each(
            #[inline(always)]
            |at| {
                for first in (0..self.runs.len).step_by(W) {
                    visit(&Group { lanes: self, at, first, n: W.min(self.runs.len - first) });
                }
            },
        );
    }
}

impl Group<'_> {
    /// Finds where the lanes lie in something with these strides.
    pub(super) fn find<const W: usize>(&self, strides: &[isize], location: &mut Location<W>) {
        location.lie = if !self.lanes.is_apart {
            match self.lanes.runs.place(self.at, strides) {
                (start, true) => Lie::Beside(start.wrapping_add(self.first)),
                (start, false) => Lie::Together(start),
            }
        } else if strides.iter().all(|stride| *stride == 0) {
            Lie::Together(0)
        } else {
            let starts = &mut location.starts[..self.n];
            self.starts(strides, starts);
            let is_beside = starts.iter().enumerate().all(|(k, start)| *start == starts[0].wrapping_add(k));
            if is_beside { Lie::Beside(starts[0]) } else { Lie::Apart }
        };
    }

    /// Where each lane lies.
    fn starts(&self, strides: &[isize], starts: &mut [usize]) {
        let inner = self.lanes.sizes.last().copied().unwrap_or(1);
        let along = strides.last().map_or(0, |stride| *stride as usize);
        let (mut lane, mut done) = (self.first, 0);
        while done < starts.len() {
            let (mut rest, mut start) = (lane / inner, 0_usize);
            let outer = self.lanes.sizes.len().saturating_sub(1);
            for (size, stride) in self.lanes.sizes[..outer].iter().zip(&strides[..outer]).rev() {
                start = (rest % size).wrapping_mul(*stride as usize).wrapping_add(start);
                rest /= size;
            }
            let at = lane % inner;
            let n = (inner - at).min(starts.len() - done);
            starts[done..][..n]
                .iter_mut()
                .zip(at..)
                .for_each(|(to, k)| *to = start.wrapping_add(k.wrapping_mul(along)));
            (lane, done) = (lane + n, done + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where every lane lies, group by group.
    fn all(sizes: &[usize], strides: &[&[isize]], of: &[isize]) -> Vec<usize> {
        let mut all = vec![];
        let mut location = Location::<8>::new();
        Lanes::new(sizes, strides).unwrap().each::<8>(|group| {
            group.find(of, &mut location);
            match location.lie {
                Lie::Together(at) => all.extend((0..group.n).map(|_| at)),
                Lie::Beside(at) => all.extend((0..group.n).map(|k| at + k)),
                Lie::Apart => all.extend(&location.starts[..group.n]),
            }
        });
        all
    }

    #[test]
    fn lanes_come_in_order_wherever_they_lie() {
        let (sizes, of): ([usize; 3], [isize; 3]) = ([3, 2, 5], [1000, 0, 7]);
        let expected: Vec<usize> =
            (0..3).flat_map(|a| (0..2).flat_map(move |_| (0..5).map(move |c| a * 1000 + c * 7))).collect();
        assert_eq!(all(&sizes, &[&of], &of), expected);
        assert_eq!(all(&sizes, &[&of], &[10, 5, 1]), (0..30).collect::<Vec<_>>());
        assert_eq!(all(&sizes, &[&[10, 5, 1]], &[0, 0, 0]), [0; 30]);
        assert_eq!(all(&[], &[], &[]), [0]);
    }

    #[test]
    fn long_runs_are_groups_of_their_own() {
        let (sizes, dense, shared): (_, [isize; 2], [isize; 2]) = ([2, 40], [40, 1], [0, 1]);
        assert_eq!(all(&sizes, &[&dense, &shared], &dense), (0..80).collect::<Vec<_>>());
        assert_eq!(all(&sizes, &[&dense, &shared], &shared), (0..40).chain(0..40).collect::<Vec<_>>());
    }
}
