//! Turning blocks: rows of steps become steps of lanes, and back.

#[cfg(target_arch = "x86_64")]
pub(super) mod squares;
#[cfg(target_arch = "x86_64")]
mod wide;

use super::CpuError;
use super::values::{Scalar, Slice, Values, with_type};

/// Elements on the side of a square that is turned at once.
const SIDE: usize = 8;

/// Rows of steps, one for each lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// Where each row begins, counted from one place.
    pub(super) starts: &'a [usize],
    pub(super) from: usize,
    /// From a step of a row to the next.
    pub(super) stride: isize,
    /// How many steps there are.
    pub(super) steps: usize,
    /// From the lanes of a step to those of the next, where they have been turned.
    pub(super) pitch: usize,
}

impl Rows<'_> {
    /// Where a step of the row that begins at one of the starts lies.
    #[inline(always)]
    fn at(&self, start: usize, step: usize) -> usize {
        start.wrapping_add(self.from).wrapping_add(step.wrapping_mul(self.stride as usize))
    }

    /// dst[s·pitch + k] = src[from + starts[k] + s·stride] for all steps and lanes.
    pub(super) fn turn<T: Scalar>(&self, dst: &mut [T], src: &[T]) {
        let Rows { starts, stride, steps, pitch, .. } = *self;
        for (block, starts) in starts.chunks(SIDE).enumerate() {
            let (k, mut done) = (block * SIDE, 0);
            if let (Ok(starts), 1) = (<[usize; SIDE]>::try_from(starts), stride) {
                let rows = starts.map(|start| &src[self.at(start, 0)..][..steps]);
                for s in (0..steps / SIDE).map(|block| block * SIDE) {
                    let square: [&[T; SIDE]; SIDE] = rows.map(|row| row[s..].first_chunk().expect("a whole square"));
                    for i in 0..SIDE {
                        dst[(s + i) * pitch + k..][..SIDE].copy_from_slice(&square.map(|row| row[i]));
                    }
                }
                done = steps / SIDE * SIDE;
            }
            for s in done..steps {
                for (d, start) in dst[s * pitch + k..].iter_mut().zip(starts) {
                    *d = src[self.at(*start, s)];
                }
            }
        }
    }

    /// dst[from + starts[k] + s·stride] = src[s·pitch + k] for all steps and lanes.
    pub(super) fn turn_back<T: Scalar>(&self, dst: &mut [T], src: &[T]) {
        for s in (0..self.steps).step_by(SIDE) {
            let rows = s..self.steps.min(s + SIDE);
            for (k, start) in self.starts.iter().enumerate() {
                for s in rows.clone() {
                    dst[self.at(*start, s)] = src[s * self.pitch + k];
                }
            }
        }
    }

    /// [`Rows::turn`] of `f32`.
    pub(super) fn turn_singles(&self, dst: &mut [f32], src: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if self.stride.abs() == 1 && squares::turn(self, dst, src) {
            return;
        }
        self.turn(dst, src);
    }

    /// [`Rows::turn_back`] of `f32`.
    pub(super) fn turn_singles_back(&self, dst: &mut [f32], src: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if self.stride.abs() == 1 && squares::turn_back(self, dst, src) {
            return;
        }
        self.turn_back(dst, src);
    }
}

/// [`Rows::turn`] into memory that grows as it must; lanes of neighbouring steps lie side by side.
///
/// # Errors
/// [`CpuError::OutOfMemory`].
pub(super) fn turn(
    dst: &mut Values,
    src: Slice<'_>,
    starts: &[usize],
    stride: usize,
    steps: usize,
) -> Result<(), CpuError> {
    let rows = Rows { starts, from: 0, stride: stride as isize, steps, pitch: starts.len() };
    let n = steps * starts.len();
    match src {
        Slice::F32(src) => rows.turn_singles(dst.room(n)?, src),
        _ => with_type!(dst.ty(), T => rows.turn::<T>(dst.room(n)?, src.of())),
    }
    Ok(())
}

/// [`Rows::turn_back`] of memory in which lanes of neighbouring steps lie side by side.
pub(super) fn turn_back(dst: &mut Values, src: Slice<'_>, starts: &[usize], stride: usize, steps: usize) {
    let rows = Rows { starts, from: 0, stride: stride as isize, steps, pitch: starts.len() };
    match src {
        Slice::F32(src) => rows.turn_singles_back(dst.all(), src),
        _ => with_type!(dst.ty(), T => rows.turn_back::<T>(dst.all(), src.of())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_back_undoes_turning() {
        for (lanes, steps, stride) in [(1, 1, 1), (7, 9, 1), (8, 8, 1), (17, 40, 1), (64, 35, 1), (9, 33, 3)] {
            let starts: Vec<usize> = (0..lanes).map(|k| (k * 5 % lanes) * steps * stride).collect();
            let src = Values::F32((0..lanes * steps * stride).map(|i| i as f32).collect());
            let mut turned = Values::F32(vec![]);
            turn(&mut turned, src.from(0), &starts, stride, steps).unwrap();
            let Values::F32(all) = &turned else { unreachable!() };
            for (i, x) in all.iter().enumerate() {
                assert_eq!(*x as usize, starts[i % lanes] + i / lanes * stride);
            }
            let mut back = Values::F32(vec![-1.0; lanes * steps * stride]);
            turn_back(&mut back, turned.from(0), &starts, stride, steps);
            let (Values::F32(back), Values::F32(src)) = (back, src) else { unreachable!() };
            assert!(back.iter().zip(&src).enumerate().all(|(i, (b, s))| b == s || i % stride != 0 && *b == -1.0));
        }
    }

    #[test]
    fn lanes_may_lie_further_apart_than_there_are_lanes() {
        for (lanes, steps) in [(1, 3), (9, 17), (16, 16), (64, 9)] {
            let (starts, pitch) = ((0..lanes).map(|k| k * steps).collect::<Vec<usize>>(), lanes + 5);
            let rows = Rows { starts: &starts, from: 0, stride: 1, steps, pitch };
            let src: Vec<f32> = (0..lanes * steps).map(|i| i as f32).collect();
            let (mut singles, mut any) = (vec![-1.0; steps * pitch], vec![-1.0; steps * pitch]);
            rows.turn_singles(&mut singles, &src);
            rows.turn(&mut any, &src);
            assert_eq!(singles, any);
            for (i, x) in any.iter().enumerate() {
                let expected = if i % pitch < lanes { src[i % pitch * steps + i / pitch] } else { -1.0 };
                assert_eq!(*x, expected);
            }
            let turned = any;
            let (mut singles, mut any) = (vec![0.0; src.len()], vec![0.0; src.len()]);
            rows.turn_singles_back(&mut singles, &turned);
            rows.turn_back(&mut any, &turned);
            assert_eq!((&singles, &any), (&src, &src));
        }
    }

    #[test]
    fn rows_may_go_backwards() {
        for (lanes, steps) in [(1, 3), (8, 8), (9, 17), (16, 16), (64, 35)] {
            // Rows lie one after the other against the order of memory, as the parts of a reversed sweep do.
            let starts: Vec<usize> = (0..lanes).map(|k: usize| (k * steps).wrapping_neg()).collect();
            let rows = Rows { starts: &starts, from: lanes * steps - 1, stride: -1, steps, pitch: lanes };
            let src: Vec<f32> = (0..lanes * steps).map(|i| i as f32).collect();
            let (mut singles, mut any) = (vec![-1.0; src.len()], vec![-1.0; src.len()]);
            rows.turn_singles(&mut singles, &src);
            rows.turn(&mut any, &src);
            let expected = |i: usize| (lanes * steps - 1 - i % lanes * steps - i / lanes) as f32;
            assert_eq!(any, (0..src.len()).map(expected).collect::<Vec<f32>>());
            assert_eq!(singles, any);
            let (mut singles, mut back) = (vec![-1.0; src.len()], vec![-1.0; src.len()]);
            rows.turn_singles_back(&mut singles, &any);
            rows.turn_back(&mut back, &any);
            assert_eq!((&singles, &back), (&src, &src));
        }
    }
}
