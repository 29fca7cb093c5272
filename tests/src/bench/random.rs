//! Random tensors: fresh numbers for every case, never zeros.

use super::cases::Fill;
use half::{bf16, f16};
use oplus::{Elem, Error, Tensor};
use rayon::prelude::*;

/// Elements filled from one seed.
const BLOCK: usize = 1 << 16;

/// A tensor on the CPU.
pub fn tensor(elem: Elem, shape: &[usize], fill: Fill, seed: u64) -> Result<Tensor, Error> {
    let values = numbers(shape.iter().product(), fill, seed);
    match elem {
        Elem::F64 => Tensor::from_vec(values.into_par_iter().map(f64::from).collect(), shape),
        Elem::Bf16 => Tensor::from_vec(values.into_par_iter().map(bf16::from_f32).collect(), shape),
        Elem::F16 => Tensor::from_vec(values.into_par_iter().map(f16::from_f32).collect(), shape),
        _ => Tensor::from_vec(values, shape),
    }
}

fn numbers(n: usize, fill: Fill, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; n];
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(k, chunk)| {
        let mut rng = fastrand::Rng::with_seed(seed ^ (k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        chunk.iter_mut().for_each(|x| *x = number(&mut rng, fill));
    });
    values
}

fn number(rng: &mut fastrand::Rng, fill: Fill) -> f32 {
    match fill {
        Fill::Uniform(low, high) => low + (high - low) * rng.f32(),
        // Box and Muller's transform.
        Fill::Normal => (-2.0 * (1.0 - rng.f32()).ln()).sqrt() * (std::f32::consts::TAU * rng.f32()).cos(),
    }
}
