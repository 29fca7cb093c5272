//! Loop nests over several strided operands at once.

use smallvec::SmallVec;

/// A few numbers, one for each axis.
pub(super) type PerAxis<T> = SmallVec<[T; 6]>;

/// A loop nest whose innermost loop is a run, with one stride per operand and loop.
///
/// Neighbouring loops that every operand walks as one are merged when the nest is built, so the run is as long as the
/// operands' strides allow.
#[derive(Clone, Debug)]
pub(super) struct Loops<const N: usize> {
    outer: SmallVec<[(usize, [isize; N]); 4]>,
    /// How many elements a run has.
    pub(super) run: usize,
    /// How far apart the elements of a run lie in every operand.
    pub(super) step: [isize; N],
}

impl<const N: usize> Loops<N> {
    /// The nest of the given loops (extent and strides), outermost first.
    pub(super) fn new(loops: impl IntoIterator<Item = (usize, [isize; N])>) -> Self {
        let mut nest: SmallVec<[(usize, [isize; N]); 4]> = SmallVec::new();
        for (extent, strides) in loops {
            match nest.last_mut() {
                _ if extent == 1 => {}
                Some((n, outer)) if (0..N).all(|k| outer[k] == strides[k] * extent as isize) => {
                    (*n, *outer) = (*n * extent, strides);
                }
                _ => nest.push((extent, strides)),
            }
        }
        let (run, step) = nest.pop().unwrap_or((1, [0; N]));
        Loops { outer: nest, run, step }
    }

    /// Makes runs of single elements, unless the elements of a run are neighbours (or one and the same element) in every
    /// operand; such a nest stays as it is.
    pub(super) fn unit(mut self) -> Self {
        if self.run != 1 && self.step.iter().any(|step| !matches!(step, 0 | 1)) {
            self.outer.push((self.run, self.step));
            (self.run, self.step) = (1, [0; N]);
        }
        self
    }

    /// Makes runs of single elements.
    pub(super) fn singles(mut self) -> Self {
        if self.run != 1 {
            self.outer.push((self.run, self.step));
            (self.run, self.step) = (1, [0; N]);
        }
        self
    }

    /// Calls `visit` with every operand's offset at the start of every run, in order.
    #[inline(always)]
    pub(super) fn each(&self, mut visit: impl FnMut([usize; N])) {
        if self.run == 0 || self.outer.iter().any(|(n, _)| *n == 0) {
            return;
        }
        let (mut few, mut many) = ([0; 8], vec![]);
        let index = if self.outer.len() <= few.len() {
            &mut few[..]
        } else {
            many.resize(self.outer.len(), 0);
            &mut many[..]
        };
        let mut at = [0_isize; N];
        loop {
            visit(at.map(|offset| offset as usize));
            let mut level = self.outer.len();
            loop {
                if level == 0 {
                    return;
                }
                level -= 1;
                let (n, strides) = &self.outer[level];
                index[level] += 1;
                if index[level] < *n {
                    (0..N).for_each(|k| at[k] += strides[k]);
                    break;
                }
                index[level] = 0;
                (0..N).for_each(|k| at[k] -= strides[k] * (*n as isize - 1));
            }
        }
    }

    /// Whether it has one run.
    pub(super) fn is_one_run(&self) -> bool {
        self.outer.is_empty()
    }

    /// How many elements all runs have together.
    pub(super) fn len(&self) -> usize {
        self.outer.iter().map(|(n, _)| n).product::<usize>() * self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets<const N: usize>(loops: &Loops<N>) -> Vec<[usize; N]> {
        let mut all = vec![];
        loops.each(|at| all.push(at));
        all
    }

    #[test]
    fn dense_loops_become_one_run() {
        let loops = Loops::new([(2, [12, 12]), (3, [4, 4]), (4, [1, 1])]);
        assert_eq!((loops.run, loops.step, offsets(&loops)), (24, [1, 1], vec![[0, 0]]));
    }

    #[test]
    fn a_broadcast_operand_keeps_its_loop() {
        let loops = Loops::new([(2, [12, 0]), (3, [4, 0]), (4, [1, 1])]);
        assert_eq!((loops.run, loops.len()), (4, 24));
        assert_eq!(offsets(&loops), (0..6).map(|i| [4 * i, 0]).collect::<Vec<_>>());
    }

    #[test]
    fn runs_with_gaps_are_taken_apart() {
        let loops = Loops::new([(2, [9, 2]), (3, [3, 0])]).unit();
        assert_eq!((loops.run, loops.len()), (1, 6));
        assert_eq!(offsets(&loops), [[0, 0], [3, 0], [6, 0], [9, 2], [12, 2], [15, 2]]);
        assert_eq!(Loops::new([(2, [9, 2]), (3, [1, 0])]).unit().run, 3);
    }

    #[test]
    fn loops_of_one_and_of_zero_elements() {
        assert_eq!(offsets(&Loops::new([(1, [7]), (3, [2]), (1, [5])])), [[0]]);
        assert_eq!(offsets(&Loops::<1>::new([])), [[0]]);
        assert!(offsets(&Loops::new([(0, [7]), (3, [2])])).is_empty());
        assert!(offsets(&Loops::new([(3, [7]), (0, [2])])).is_empty());
    }

    #[test]
    fn strides_may_go_backwards_from_an_operands_origin() {
        let loops = Loops::new([(2, [10]), (2, [-3]), (2, [1])]);
        let at: Vec<isize> = offsets(&loops).iter().map(|[at]| *at as isize).collect();
        assert_eq!(at, [0, -3, 10, 7]);
    }
}
