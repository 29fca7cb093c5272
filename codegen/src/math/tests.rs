//! Errors of the expansions on dense samples, as the simulator computes them.

use oplus_dsl::ir::Unary;
use oplus_dsl::{Ty, scalar};

use super::expand;
use crate::build::Builder;
use crate::simulate::lanes::{LANES, Lanes, Operation, Value, compute, literal};
use crate::tile::{Expr, Kernel, Operand, Reg, Stmt};

/// A function's expansion, to be applied to many values.
struct Expansion {
    kernel: Kernel,
    argument: Reg,
    result: Operand,
}

impl Expansion {
    fn new(op: Unary, ty: Ty) -> Expansion {
        let mut b = Builder::new("math", 32);
        let argument = b.reg(ty);
        let result = expand(&mut b, op, argument.into());
        Expansion { kernel: b.finish(), argument, result }
    }

    fn apply(&self, x: &Lanes) -> Lanes {
        let mut regs = vec![[0; LANES]; self.kernel.regs.len()];
        regs[self.argument.0 as usize] = *x;
        self.list(&self.kernel.body, &mut regs, u32::MAX);
        self.value(&regs, self.result)
    }

    fn value(&self, regs: &[Lanes], operand: Operand) -> Lanes {
        match operand {
            Operand::Reg(r) => regs[r.0 as usize],
            Operand::Const(ty, x) => [literal(ty, x); LANES],
        }
    }

    fn list(&self, list: &[Stmt], regs: &mut Vec<Lanes>, active: u32) {
        for stmt in list {
            match stmt {
                Stmt::Let(dst, expr) => {
                    let r = self.expr(*dst, expr, regs);
                    for l in 0..LANES {
                        if active >> l & 1 == 1 {
                            regs[dst.0 as usize][l] = r[l];
                        }
                    }
                }
                Stmt::If { condition, then, otherwise } => {
                    let c = self.value(regs, *condition);
                    let mask = (0..LANES).fold(0, |m, l| m | ((c[l] & 1) as u32) << l);
                    self.list(then, regs, active & mask);
                    self.list(otherwise, regs, active & !mask);
                }
                _ => panic!("{stmt:?}"),
            }
        }
    }

    fn expr(&self, dst: Reg, expr: &Expr, regs: &[Lanes]) -> Lanes {
        let v = |x| self.value(regs, x);
        let ty = |x| self.kernel.ty(x);
        let z = [0; LANES];
        let _ = dst;
        match *expr {
            Expr::Copy(a) | Expr::Bits(a) => v(a),
            Expr::Unary(op, a) => compute(Operation::Unary(op, ty(a)), &v(a), &z, &z),
            Expr::Binary(op, a, b) => compute(Operation::Binary(op, ty(a)), &v(a), &v(b), &z),
            Expr::Fma(a, b, c) => compute(Operation::Fma(ty(a)), &v(a), &v(b), &v(c)),
            Expr::Select(a, b, c) => compute(Operation::Select, &v(a), &v(b), &v(c)),
            Expr::Convert(e, a) => compute(Operation::Convert(ty(a), e), &v(a), &z, &z),
            Expr::Exp2Fast(a) => compute(Operation::Exp2, &v(a), &z, &z),
            Expr::RecipFast(a) => compute(Operation::Recip, &v(a), &z, &z),
            _ => panic!("{expr:?}"),
        }
    }
}

/// The bounds of the module documentation: function, ulps in `f32`, in `f64`, and a limit of |x|.
const BOUNDS: [(Unary, f64, f64, f64); 12] = [
    (Unary::Exp, 3.0, 1.0, f64::MAX),
    (Unary::Exp2, 3.0, 1.0, f64::MAX),
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
    let expansion = Expansion::new(op, ty);
    let mut worst = (0.0, 0.0);
    for chunk in sample.chunks(LANES) {
        let at = |l: usize| chunk[l.min(chunk.len() - 1)];
        let single = ty == Ty::F32;
        let x = std::array::from_fn(|l| if single { (at(l) as f32).to_lane() } else { at(l).to_lane() });
        let y = expansion.apply(&x);
        for l in 0..chunk.len() {
            let exact = scalar::float_unary(op, at(l));
            let error = if single {
                let limits = (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
                ulps(f64::from(f32::from_lane(y[l])), exact, 24, limits.0, limits.1)
            } else {
                ulps(f64::from_lane(y[l]), exact, 53, f64::MIN_POSITIVE, f64::MAX)
            };
            if error > worst.0 {
                worst = (error, at(l));
            }
        }
    }
    worst
}

const SPECIAL: [f64; 9] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 1e30, -1e30];

#[test]
fn singles_over_the_whole_range() {
    for (op, bound, _, limit) in BOUNDS {
        let bits = (0..0x7f80_0000u32).step_by(10_007).flat_map(|b| [b, b | 1 << 31]);
        let all = bits.map(|b| f64::from(f32::from_bits(b))).chain(SPECIAL);
        let sample: Vec<f64> = all.filter(|x| x.abs() <= limit || !x.is_finite()).collect();
        let silu_underflow = |x: f64| op == Unary::Silu && (-93.0..-87.0).contains(&x);
        let sample: Vec<f64> = sample.into_iter().filter(|x| !silu_underflow(*x)).collect();
        let (error, x) = worst(op, Ty::F32, &sample);
        assert!(error <= bound, "{op:?} of {x:e}: {error} ulp");
    }
}

#[test]
fn doubles_over_the_whole_range() {
    for (op, _, bound, limit) in BOUNDS {
        let bits = (0..0x7ff0_0000_0000_0000u64).step_by(60_000_000_000_017).flat_map(|b| [b, b | 1 << 63]);
        let near = (0..100_000).map(|i| f64::from(i) * 1.7e-4 - 8.5);
        let all = bits.map(f64::from_bits).chain(near).chain(SPECIAL);
        let sample: Vec<f64> = all.filter(|x| x.abs() <= limit || !x.is_finite()).collect();
        let silu_underflow = |x: f64| op == Unary::Silu && (-720.0..-700.0).contains(&x);
        let sample: Vec<f64> = sample.into_iter().filter(|x| !silu_underflow(*x)).collect();
        // The reference itself is wrong by up to 0.6 ulp.
        let (error, x) = worst(op, Ty::F64, &sample);
        assert!(error <= bound + 0.6, "{op:?} of {x:e}: {error} ulp");
    }
}
