//! Errors of the expansions on dense samples, as the simulator computes them.

use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Ty, scalar};

use super::{expand, expand_binary, number};
use crate::build::Builder;
use crate::simulate::{Arg, Buffer, Launch, Memory, Options, simulate};
use crate::tile::{Kernel, Memory as Place, Operand, ParamKind, Special};

const THREADS: u32 = 256;

/// y[i] = f(x[i]) for i < n.
fn kernel(ty: Ty, f: impl FnOnce(&mut Builder, Operand) -> Operand) -> Kernel {
    let mut b = Builder::new("apply", THREADS);
    let elem = ty.elem().expect("a scalar type");
    let (x, y) = (b.param("x", ParamKind::Read(elem)), b.param("y", ParamKind::Write(elem)));
    let n = b.param("n", ParamKind::Scalar(Ty::I64));
    let n = b.scalar(n);
    let (block, thread) = (b.special(Special::Block), b.special(Special::Thread));
    let first = b.mul(block, THREADS);
    let index = b.add(first, thread);
    let index = b.convert(Ty::I64, index);
    let inside = b.lt(index, n);
    let value = b.load(Place::Global(x), index, 1, Some(inside), number(ty, 0.0))[0];
    let value = f(&mut b, value);
    b.store(Place::Global(y), index, &[value], Some(inside));
    b.finish()
}

/// The values of a function's expansion.
fn apply(op: Unary, ty: Ty, sample: &[f64]) -> Vec<f64> {
    apply_kernel(&kernel(ty, |b, x| expand(b, op, x)), ty, sample)
}

fn apply_kernel(kernel: &Kernel, ty: Ty, sample: &[f64]) -> Vec<f64> {
    let elem = ty.elem().expect("a scalar type");
    let mut memory = Memory::new();
    let x = memory.add(Buffer::floats(elem, sample.iter().copied()));
    let y = memory.add(Buffer::unwritten(elem, sample.len()));
    let args = vec![x.into(), y.into(), Arg::Scalar(Literal::Int(sample.len() as i64))];
    let grid = [(sample.len() as u32).div_ceil(THREADS), 1];
    simulate(kernel, &Launch { grid, args }, &mut memory, &Options::default()).expect("runs");
    memory.buffer(y).to_floats()
}

/// The bounds of the module documentation: function, units in the last place (which are not larger than the documented
/// ones) in `f32`, in `f64`, and a limit of |x|.
const BOUNDS: [(Unary, f64, f64, f64); 12] = [
    (Unary::Exp, 3.0, 1.0, f64::MAX),
    (Unary::Exp2, 2.0, 1.0, f64::MAX),
    (Unary::Ln, 1.5, 1.5, f64::MAX),
    (Unary::Log1p, 1.5, 1.5, f64::MAX),
    (Unary::Tanh, 3.0, 2.0, f64::MAX),
    (Unary::Sigmoid, 5.0, 2.0, f64::MAX),
    (Unary::Softplus, 4.0, 2.0, f64::MAX),
    (Unary::Silu, 6.0, 3.0, f64::MAX),
    (Unary::Sin, 1.5, 1.5, 3.5e13),
    (Unary::Cos, 1.5, 1.5, 3.5e13),
    (Unary::Rsqrt, 1.5, 1.5, f64::MAX),
    (Unary::Powi(3), 1.5, 1.5, f64::MAX),
];

/// The distance of `got` from the exact value in units of its last place of `digits` bits; 0 where both are the same
/// special value, or where the exact value is not a normal number and the result is as small or as large.
fn ulps(got: f64, exact: f64, digits: i32, smallest: f64, largest: f64) -> f64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if exact.abs() > largest || got.is_infinite() {
        return if got.abs() >= largest && exact.abs() >= largest * (1.0 - 1e-6) { 0.0 } else { f64::INFINITY };
    }
    if exact.abs() < smallest {
        return if got.abs() <= smallest { 0.0 } else { f64::INFINITY };
    }
    let last_place = 2f64.powi((exact.abs().log2().floor() as i32).max(-1022) - digits + 1);
    (got - exact).abs() / last_place
}

/// The worst error of a function over a sample, and where it is.
fn worst(op: Unary, ty: Ty, sample: &[f64]) -> (f64, f64) {
    let (digits, smallest, largest) = match ty {
        Ty::F32 => (24, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        _ => (53, f64::MIN_POSITIVE, f64::MAX),
    };
    let errors = apply(op, ty, sample).into_iter().zip(sample).map(|(got, x)| {
        let exact = scalar::float_unary(op, *x);
        (ulps(got, exact, digits, smallest, largest), *x)
    });
    errors.fold((0.0, 0.0), |worst, error| if error.0 > worst.0 { error } else { worst })
}

const SPECIAL: [f64; 9] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 1e30, -1e30];

/// The sample where a function has a bound: where silu leaves the normal numbers it has an absolute one.
fn inside(op: Unary, limit: f64, silu: std::ops::Range<f64>, sample: impl Iterator<Item = f64>) -> Vec<f64> {
    let skip = |x: f64| op == Unary::Silu && silu.contains(&x);
    sample.filter(|x| (x.abs() <= limit || !x.is_finite()) && !skip(*x)).collect()
}

#[test]
fn singles_over_the_whole_range() {
    for (op, bound, _, limit) in BOUNDS {
        let bits = (0..0x7f80_0000u32).step_by(10_007).flat_map(|b| [b, b | 1 << 31]);
        let all = bits.map(|b| f64::from(f32::from_bits(b))).chain(SPECIAL.map(|x| f64::from(x as f32)));
        let (error, x) = worst(op, Ty::F32, &inside(op, limit, -93.0..-87.0, all));
        assert!(error <= bound, "{op:?} of {x:e}: {error} ulp");
    }
}

#[test]
fn doubles_over_the_whole_range() {
    for (op, _, bound, limit) in BOUNDS {
        let bits = (0..0x7ff0_0000_0000_0000u64).step_by(150_000_000_000_017).flat_map(|b| [b, b | 1 << 63]);
        let near = (0..100_000).map(|i| f64::from(i) * 1.7e-4 - 8.5);
        let all = bits.map(f64::from_bits).chain(near).chain(SPECIAL);
        let (error, x) = worst(op, Ty::F64, &inside(op, limit, -720.0..-700.0, all));
        // The reference itself is wrong by up to 0.6 ulp.
        assert!(error <= bound + 0.6, "{op:?} of {x:e}: {error} ulp");
    }
}

#[test]
fn silu_leaves_the_normal_numbers_gently() {
    let sample: Vec<f64> = (0..6000).map(|i| f64::from(-87.0f32 - i as f32 / 1000.0)).collect();
    for (got, x) in apply(Unary::Silu, Ty::F32, &sample).into_iter().zip(&sample) {
        let error = (got - scalar::float_unary(Unary::Silu, *x)).abs();
        assert!(error <= 2f64.powi(-119), "silu({x}) = {got:e}");
    }
}

#[test]
fn angles_beyond_the_reduction_stay_in_range() {
    let sample: Vec<f64> = (46..128).flat_map(|e| [2f64.powi(e), -1.7 * 2f64.powi(e)]).collect();
    for (op, ty) in [Unary::Sin, Unary::Cos].into_iter().flat_map(|op| [Ty::F32, Ty::F64].map(|ty| (op, ty))) {
        let values = apply(op, ty, &sample);
        assert!(values.iter().all(|y| y.abs() <= 1.0), "{op:?} {ty}");
    }
}

#[test]
fn large_angles_are_reduced_in_doubles() {
    let sample: Vec<f64> = (0..2000).map(|i| f64::from(65_000.0f32 + i as f32 * 517.3)).collect();
    for op in [Unary::Sin, Unary::Cos] {
        let (error, x) = worst(op, Ty::F32, &sample);
        assert!(error <= 1.5, "{op:?} of {x}: {error} ulp");
    }
}

#[test]
fn integer_powers_are_those_of_the_program_ir() {
    let sample: Vec<f64> = (-20..20).map(|i| f64::from(i) * 0.37).chain(SPECIAL).collect();
    for n in [0, 1, 2, 3, 5, 7, 16, -1, -2, -5] {
        let op = Unary::Powi(n);
        for (got, x) in apply(op, Ty::F64, &sample).into_iter().zip(&sample) {
            let exact = scalar::float_unary(op, *x);
            assert!(got == exact || got.is_nan() && exact.is_nan(), "{x}^{n} = {got}, not {exact}");
        }
    }
}

#[test]
fn remainders_are_exact() {
    let awkward =
        [0.0, 1.0, 0.1, 3.0, 1e-3, 7e5, 1e30, 3.4e38, 1.2e-38, 1e-40, 1.4e-45, 16_777_215.0, f64::INFINITY, f64::NAN];
    let signed: Vec<f64> = awkward.iter().flat_map(|x| [*x, -x]).collect();
    for ty in [Ty::F32, Ty::F64] {
        let sample: Vec<f64> = signed.iter().map(|x| scalar::round_to(ty, *x)).collect();
        for y in &sample {
            let kernel = kernel(ty, |b, x| expand_binary(b, Binary::Rem, x, number(ty, *y)));
            for (got, x) in apply_kernel(&kernel, ty, &sample).into_iter().zip(&sample) {
                let exact = x % y;
                let same = got.to_bits() == exact.to_bits() || got.is_nan() && exact.is_nan();
                assert!(same, "{x:e} % {y:e} = {got:e}, not {exact:e}: {ty}");
            }
        }
    }
}
