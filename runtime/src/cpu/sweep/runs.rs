//! Lanes that lie side by side in everything that a sweep touches.

/// The lanes' axes as loops around runs: along a run everything is either dense or one value.
pub(super) struct Runs {
    /// The sizes of the axes around.
    outer: Vec<usize>,
    /// The sizes of the axes of a run.
    inner: Vec<usize>,
    /// How many lanes a run has.
    pub(super) len: usize,
}

impl Runs {
    /// The longest runs in all operands, which the strides along the lanes' axes describe. `None` without lanes.
    pub(super) fn new(lanes: &[usize], operands: &[&[isize]]) -> Option<Runs> {
        if lanes.contains(&0) {
            return None;
        }
        let mut inner = lanes.len();
        while inner > 0 && operands.iter().all(|strides| is_run(&lanes[inner - 1..], &strides[inner - 1..])) {
            inner -= 1;
        }
        let (outer, inner) = lanes.split_at(inner);
        Some(Runs { outer: outer.to_vec(), inner: inner.to_vec(), len: inner.iter().product() })
    }

    /// All lanes in one, wherever they lie.
    pub(super) fn of_all(lanes: &[usize]) -> Runs {
        Runs { outer: vec![], inner: lanes.to_vec(), len: lanes.iter().product() }
    }

    /// Where a run begins in an operand, from the indices of the axes around, and whether its lanes differ.
    pub(super) fn place(&self, at: &[usize], strides: &[isize]) -> (usize, bool) {
        let (outer, inner) = strides.split_at(at.len());
        let steps = at.iter().zip(outer).map(|(i, stride)| i.wrapping_mul(*stride as usize));
        let start = steps.fold(0, usize::wrapping_add);
        (start, self.inner.iter().zip(inner).any(|(size, stride)| *size > 1 && *stride != 0))
    }

    /// Calls `visit` with the indices of the axes around for every run.
    #[inline(always)]
    pub(super) fn each(&self, mut visit: impl FnMut(&[usize])) {
        let mut at = vec![0; self.outer.len()];
        loop {
            visit(&at);
            let Some(axis) = (0..at.len()).rev().find(|axis| at[*axis] + 1 < self.outer[*axis]) else { return };
            at[axis] += 1;
            at[axis + 1..].fill(0);
        }
    }
}

/// Whether something is dense over some axes, or one value.
fn is_run(sizes: &[usize], strides: &[isize]) -> bool {
    let mut len = 1;
    let is_dense = (0..sizes.len()).rev().all(|axis| {
        let fits = sizes[axis] == 1 || strides[axis] == len;
        len *= sizes[axis] as isize;
        fits
    });
    is_dense || (0..sizes.len()).all(|axis| sizes[axis] == 1 || strides[axis] == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lanes: &[usize], operands: &[&[isize]]) -> (usize, Vec<Vec<usize>>) {
        let runs = Runs::new(lanes, operands).unwrap();
        let mut all = vec![];
        runs.each(|at| all.push(at.to_vec()));
        (runs.len, all)
    }

    #[test]
    fn dense_operands_and_single_values_make_one_run() {
        assert_eq!(runs(&[2, 3], &[&[3, 1], &[0, 0]]), (6, vec![vec![]]));
        assert_eq!(runs(&[], &[&[]]), (1, vec![vec![]]));
        assert_eq!(runs(&[4, 1], &[&[1, 0], &[1, 7]]), (4, vec![vec![]]));
    }

    #[test]
    fn an_operand_that_varies_less_cuts_the_run() {
        assert_eq!(runs(&[2, 3], &[&[3, 1], &[0, 1]]), (3, vec![vec![0], vec![1]]));
        assert_eq!(runs(&[2, 3], &[&[3, 1], &[1, 0]]), (3, vec![vec![0], vec![1]]));
        assert_eq!(runs(&[2, 2], &[&[1, 2]]).0, 1);
    }

    #[test]
    fn a_run_of_one_value_does_not_vary() {
        let runs = Runs::new(&[3, 1, 4], &[&[4, 4, 1], &[5, 1, 0], &[0, 0, 1]]).unwrap();
        assert_eq!(runs.place(&[2], &[4, 4, 1]), (8, true));
        assert_eq!(runs.place(&[2], &[5, 1, 0]), (10, false));
        assert_eq!(runs.place(&[2], &[0, 0, 1]), (0, true));
    }

    #[test]
    fn no_lanes_are_no_runs() {
        assert!(Runs::new(&[2, 0], &[]).is_none());
    }
}
