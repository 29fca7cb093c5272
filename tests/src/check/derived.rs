//! Kernels that are derived, and plans in pieces: on a GPU as on the CPU.
//!
//! Derivatives of higher order come from `oplus::typed`, with inputs and cotangents as their parameters. Plans run in pieces where they
//! would store far more than a call reads and writes.

use std::sync::Arc;

use oplus::{Elem, Kernel, Tensor, kernels, models, scan};
use oplus_dsl::rng::Rng;

use super::CheckError;
use super::case::Extent;
use super::oracle::Agreement;
use super::scenario::{Scenario, World, unexpected};

/// The root mean square of the difference may be so much of that of the numbers.
const RULE: f64 = 1e-4;

scan! {
    /// RWKV-6: states are read before their elements are added.
    fn bonus(
        r: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], w: wide[B, H, T, K], u: wide[H, K],
    ) -> (o: [B, H, T, V]) {
        let s = scan(T, LogDecay(w, k * v), exclusive).x;
        o = sum(K, r * (s + u * k * v));
    }

    /// Stick-breaking attention: a scan along the columns of a row.
    fn sticks(q: [B, H, M, E], k: [B, H, N, E], v: [B, H, N, F]) -> (o: [B, H, M, F]) {
        let s = sum(E, q * k);
        let rest = scan(N, Sum(-softplus(s)), reverse, exclusive);
        o = sum(N, exp(rest + s - softplus(s)) * v);
    }
}

/// Sizes of axes.
type Sizes = &'static [(&'static str, usize)];

/// All scenarios of derived kernels and of pieces.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let (second, third) = (kernels::affine::gradient().gradient(), kernels::affine::gradient().gradient().gradient());
    let attention = models::monoid_attention::gradient();
    let mut all = vec![
        of("typed/first of affine", kernels::affine::gradient().kernel(), &[("B", 3), ("T", 5000)]),
        of("typed/second of affine", second.kernel(), &[("B", 3), ("T", 5000)]),
        of("typed/third of affine", third.kernel(), &[("B", 2), ("T", 777)]),
        of("typed/first of monoid_attention", attention.kernel(), &[("B", 2), ("H", 3), ("T", 130)]),
        of("typed/second of monoid_attention", attention.gradient().kernel(), &[("B", 2), ("H", 2), ("T", 70)]),
    ];
    if extent != Extent::Quick {
        let long: Sizes = &[("B", 5), ("H", 4), ("T", 1024), ("K", 64), ("V", 64)];
        let pairs: Sizes = &[("B", 5), ("H", 4), ("M", 1024), ("N", 1030), ("E", 24), ("F", 40)];
        all.push(of("pieces/gradient of exclusive scans", bonus::gradient().kernel(), long));
        all.push(of("pieces/scans of pairs", Ok(Arc::new(Kernel::new("sticks", sticks::TEXT))), pairs));
        all.push(of("pieces/gradient of scans of pairs", sticks::gradient().kernel(), pairs));
    }
    all
}

/// The scenario of a kernel in f32.
fn of(name: &str, kernel: Result<Arc<Kernel>, oplus::Error>, sizes: Sizes) -> Scenario {
    Scenario::new(name, move |world| agree(world, &*kernel.clone()?, sizes))
}

/// The outputs of a call on the GPU are those on the CPU.
fn agree(world: &World, kernel: &Kernel, sizes: Sizes) -> Result<Agreement, CheckError> {
    let inputs = inputs(kernel, sizes)?;
    let device = world.device()?;
    let moved = inputs.iter().map(|tensor| tensor.to_device(&device)).collect::<Result<Vec<_>, _>>()?;
    let call = |inputs: &[Tensor]| kernel.call(&inputs.iter().map(Some).collect::<Vec<_>>());
    let (wanted, found) = (call(&inputs)?.0, call(&moved)?.0);
    let mut all = Agreement::default();
    for (output, (wanted, found)) in kernel.program()?.outputs.iter().zip(wanted.iter().zip(&found)) {
        let (wanted, found) = (wanted.to_vec::<f32>()?, found.to_vec::<f32>()?);
        let square = |x: f32| f64::from(x) * f64::from(x);
        let error: f64 = wanted.iter().zip(&found).map(|(x, y)| square(x - y)).sum();
        let size: f64 = wanted.iter().map(|x| square(*x)).sum();
        let relative = (error / size.max(f64::MIN_POSITIVE)).sqrt();
        if relative.is_nan() || relative > RULE {
            return unexpected(format!("`{}` has a relative error of {relative:.1e}", output.name));
        }
        all = Agreement { worst: all.worst.max(relative / RULE), compared: all.compared + wanted.len(), unbounded: 0 };
    }
    Ok(all)
}

/// Random inputs: logarithms of decays are negative.
fn inputs(kernel: &Kernel, sizes: Sizes) -> Result<Vec<Tensor>, CheckError> {
    let (program, mut rng) = (kernel.program()?.instantiate(Elem::F32), Rng::new(11));
    let size = |axis: &str| sizes.iter().find(|(name, _)| *name == axis).map_or(16, |(_, size)| *size);
    let tensor = |param: &oplus_dsl::ir::Param| {
        let shape: Vec<usize> = param.axes.iter().map(|axis| size(program.axis_name(*axis))).collect();
        let (low, high) = if ["w", "g"].contains(&&*param.name) { (-1.0, 0.0) } else { (-1.0, 1.0) };
        let elements: Vec<f32> = (0..shape.iter().product()).map(|_| rng.between(low, high) as f32).collect();
        Ok(Tensor::from_vec(elements, &shape)?)
    };
    program.params.iter().map(tensor).collect()
}
