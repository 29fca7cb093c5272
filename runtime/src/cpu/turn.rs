//! Turning blocks: rows of steps become steps of lanes, and back.

#[cfg(target_arch = "x86_64")]
pub(super) mod squares;

use super::CpuError;
use super::values::{Scalar, Slice, Values, with_type};

/// Elements on the side of a square that is turned at once.
const SIDE: usize = 8;

/// dst[s·lanes + k] = src[starts[k] + s·stride] for all `steps` and lanes.
pub(super) fn turn(
    dst: &mut Values,
    src: Slice<'_>,
    starts: &[usize],
    stride: usize,
    steps: usize,
) -> Result<(), CpuError> {
    let n = steps * starts.len();
    #[cfg(target_arch = "x86_64")]
    if let (Values::F32(_), Slice::F32(src), 1) = (&dst, src, stride)
        && squares::turn(dst.room(n)?, src, starts, steps)
    {
        return Ok(());
    }
    with_type!(dst.ty(), T => turn_typed::<T>(dst.room(n)?, src.of(), starts, stride, steps));
    Ok(())
}

/// dst[starts[k] + s·stride] = src[s·lanes + k] for all `steps` and lanes.
pub(super) fn turn_back(dst: &mut Values, src: Slice<'_>, starts: &[usize], stride: usize, steps: usize) {
    #[cfg(target_arch = "x86_64")]
    if let (Values::F32(dst), Slice::F32(src), 1) = (&mut *dst, src, stride)
        && squares::turn_back(dst, src, starts, steps)
    {
        return;
    }
    with_type!(dst.ty(), T => turn_back_typed::<T>(dst.all(), src.of(), starts, stride, steps));
}

fn turn_typed<T: Scalar>(dst: &mut [T], src: &[T], starts: &[usize], stride: usize, steps: usize) {
    let lanes = starts.len();
    for k in (0..lanes).step_by(SIDE) {
        let starts = &starts[k..lanes.min(k + SIDE)];
        let mut done = 0;
        if let (Ok(starts), 1) = (<[usize; SIDE]>::try_from(starts), stride) {
            let rows = starts.map(|start| &src[start..][..steps]);
            for s in (0..steps / SIDE).map(|block| block * SIDE) {
                let square: [&[T; SIDE]; SIDE] = rows.map(|row| row[s..].first_chunk().expect("a whole square"));
                for i in 0..SIDE {
                    dst[(s + i) * lanes + k..][..SIDE].copy_from_slice(&square.map(|row| row[i]));
                }
            }
            done = steps / SIDE * SIDE;
        }
        for s in done..steps {
            for (d, start) in dst[s * lanes + k..].iter_mut().zip(starts) {
                *d = src[start + s * stride];
            }
        }
    }
}

fn turn_back_typed<T: Scalar>(dst: &mut [T], src: &[T], starts: &[usize], stride: usize, steps: usize) {
    let lanes = starts.len();
    for s in (0..steps).step_by(SIDE) {
        let rows = s..steps.min(s + SIDE);
        for (k, start) in starts.iter().enumerate() {
            for s in rows.clone() {
                dst[start + s * stride] = src[s * lanes + k];
            }
        }
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
}
