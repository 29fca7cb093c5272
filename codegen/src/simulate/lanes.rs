//! The registers of a warp and arithmetic on them: 32 values at once, bit for bit as PTX computes them.

use half::{bf16, f16};
use num_traits::{AsPrimitive, Float, PrimInt, WrappingAdd, WrappingMul, WrappingSub, Zero};
use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

use crate::tile::Half;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// One register of a warp: the bits of 32 values, narrower ones extended by zeros.
pub(crate) type Lanes = [u64; LANES];

/// An operation on registers, with the type of its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    /// The first operand.
    Copy,
    /// A function of one value.
    Unary(Unary, Ty),
    /// A function of two values.
    Binary(Binary, Ty),
    /// a·b + c, rounded once.
    Fma(Ty),
    /// The second operand where the first is true, else the third.
    Select,
    /// From a type to an element type and back to that element's type of value.
    Convert(Ty, Elem),
    /// Two values rounded to 16 bits each, the first in the low half.
    Pack(Elem),
    /// The value of 16 bits.
    Unpack(Elem, Half),
    /// 2ˣ.
    Exp2,
    /// log₂ x.
    Log2,
    /// tanh x.
    Tanh,
    /// 1/x.
    Recip,
}

/// The result of an operation in every lane.
pub(crate) fn compute(operation: Operation, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    match operation {
        Operation::Copy => *a,
        Operation::Unary(op, ty) => unary(op, ty, a),
        Operation::Binary(op, ty) => binary(op, ty, a, b),
        Operation::Fma(Ty::F64) => zip3(a, b, c, f64::mul_add),
        Operation::Fma(_) => zip3(a, b, c, f32::mul_add),
        Operation::Select => std::array::from_fn(|l| if a[l] & 1 == 1 { b[l] } else { c[l] }),
        Operation::Convert(from, to) => convert(from, to, a),
        Operation::Pack(elem) => zip(a, b, |x: f32, y: f32| pack(elem, x) | pack(elem, y) << 16),
        Operation::Unpack(elem, Half::Low) => map(a, |x: u32| unpack(elem, x)),
        Operation::Unpack(elem, Half::High) => map(a, |x: u32| unpack(elem, x >> 16)),
        Operation::Exp2 => fast(a, f64::exp2),
        Operation::Log2 => fast(a, f64::log2),
        Operation::Tanh => fast(a, f64::tanh),
        Operation::Recip => fast(a, f64::recip),
    }
}

/// A value as a register holds it.
pub(crate) trait Value: Copy {
    /// The value of a lane's bits.
    fn from_lane(bits: u64) -> Self;
    /// A lane's bits for the value.
    fn to_lane(self) -> u64;
}

macro_rules! value {
    ($($t:ty: $from:expr, $to:expr;)*) => {$(
        impl Value for $t {
            fn from_lane(bits: u64) -> Self {
                $from(bits)
            }
            fn to_lane(self) -> u64 {
                $to(self)
            }
        }
    )*};
}

value! {
    f32: |b| f32::from_bits(b as u32), |x: f32| u64::from(x.to_bits());
    f64: f64::from_bits, f64::to_bits;
    i32: |b| b as i32, |x| u64::from(x as u32);
    i64: |b| b as i64, |x| x as u64;
    u32: |b| b as u32, u64::from;
    u64: |b| b, |x| x;
    bool: |b| b & 1 == 1, u64::from;
}

/// A constant as a register holds it.
pub(crate) fn literal(ty: Ty, x: Literal) -> u64 {
    match (ty, x) {
        (Ty::F32, x) => (x.as_f64() as f32).to_lane(),
        (Ty::F64 | Ty::Call | Ty::Wide | Ty::Tuple, x) => x.as_f64().to_lane(),
        (Ty::I32 | Ty::U32, Literal::Int(i)) => (i as u32).to_lane(),
        (_, Literal::Int(i)) => i.to_lane(),
        (_, x) => (x.as_f64() != 0.0).to_lane(),
    }
}

fn map<A: Value, R: Value>(a: &Lanes, f: impl Fn(A) -> R) -> Lanes {
    std::array::from_fn(|l| f(A::from_lane(a[l])).to_lane())
}

fn zip<A: Value, R: Value>(a: &Lanes, b: &Lanes, f: impl Fn(A, A) -> R) -> Lanes {
    std::array::from_fn(|l| f(A::from_lane(a[l]), A::from_lane(b[l])).to_lane())
}

fn zip3<A: Value>(a: &Lanes, b: &Lanes, c: &Lanes, f: impl Fn(A, A, A) -> A) -> Lanes {
    std::array::from_fn(|l| f(A::from_lane(a[l]), A::from_lane(b[l]), A::from_lane(c[l])).to_lane())
}

/// The bits of a value rounded to an element of 16 bits.
fn pack(elem: Elem, x: f32) -> u32 {
    u32::from(if elem == Elem::Bf16 { bf16::from_f32(x).to_bits() } else { f16::from_f32(x).to_bits() })
}

/// The value of the element in the low 16 bits.
pub(super) fn unpack(elem: Elem, bits: u32) -> f32 {
    let bits = bits as u16;
    if elem == Elem::Bf16 { bf16::from_bits(bits).to_f32() } else { f16::from_bits(bits).to_f32() }
}

/// A function of the special-function unit: correctly rounded, denormals flushed on both sides.
fn fast(a: &Lanes, f: impl Fn(f64) -> f64) -> Lanes {
    let flush = |x: f32| if x.is_subnormal() { 0.0f32.copysign(x) } else { x };
    map(a, |x: f32| flush(f(f64::from(flush(x))) as f32))
}

fn unary(op: Unary, ty: Ty, a: &Lanes) -> Lanes {
    match ty {
        Ty::F64 => float_unary::<f64>(op, a),
        Ty::I32 => int_unary::<i32>(op, a),
        Ty::I64 => int_unary::<i64>(op, a),
        Ty::U32 => int_unary::<u32>(op, a),
        Ty::U64 => int_unary::<u64>(op, a),
        Ty::Bool => map(a, |x: bool| x ^ (op == Unary::Not)),
        Ty::F32 | Ty::Call | Ty::Wide | Ty::Tuple => float_unary::<f32>(op, a),
    }
}

/// The native functions; the others are expanded before a kernel runs.
fn float_unary<T: Value + Float>(op: Unary, a: &Lanes) -> Lanes {
    match op {
        Unary::Neg => map(a, |x: T| -x),
        Unary::Abs => map(a, |x: T| x.abs()),
        Unary::Sign => map(a, |x: T| if x.is_zero() || x.is_nan() { x } else { x.signum() }),
        Unary::Sqrt => map(a, |x: T| x.sqrt()),
        Unary::Recip => map(a, |x: T| x.recip()),
        Unary::Relu => map(a, |x: T| maximum(x, T::zero())),
        Unary::Floor => map(a, |x: T| x.floor()),
        _ => *a,
    }
}

fn int_unary<T: Value + PrimInt + WrappingSub>(op: Unary, a: &Lanes) -> Lanes {
    let zero = T::zero();
    match op {
        Unary::Neg => map(a, |x: T| zero.wrapping_sub(&x)),
        Unary::Not => map(a, |x: T| !x),
        Unary::Abs => map(a, |x: T| if x < zero { zero.wrapping_sub(&x) } else { x }),
        Unary::Sign => map(a, |x: T| if x < zero { !zero } else { x.min(T::one()) }),
        Unary::Relu => map(a, |x: T| x.max(zero)),
        _ => *a,
    }
}

fn binary(op: Binary, ty: Ty, a: &Lanes, b: &Lanes) -> Lanes {
    match ty {
        Ty::F64 => float_binary::<f64>(op, a, b),
        Ty::I32 => int_binary::<i32>(op, a, b),
        Ty::I64 => int_binary::<i64>(op, a, b),
        Ty::U32 => int_binary::<u32>(op, a, b),
        Ty::U64 => int_binary::<u64>(op, a, b),
        Ty::Bool => bool_binary(op, a, b),
        Ty::F32 | Ty::Call | Ty::Wide | Ty::Tuple => float_binary::<f32>(op, a, b),
    }
}

fn float_binary<T: Value + Float>(op: Binary, a: &Lanes, b: &Lanes) -> Lanes {
    match op {
        Binary::Add => zip(a, b, |x: T, y| x + y),
        Binary::Sub => zip(a, b, |x: T, y| x - y),
        Binary::Mul => zip(a, b, |x: T, y| x * y),
        Binary::Div => zip(a, b, |x: T, y| x / y),
        Binary::Max => zip(a, b, maximum::<T>),
        Binary::Min => zip(a, b, |x: T, y| -maximum(-x, -y)),
        _ => comparison::<T>(op, a, b),
    }
}

/// The larger; the other one when one is NaN; +0 is larger than −0.
fn maximum<T: Float>(x: T, y: T) -> T {
    if x == y { if x.is_sign_positive() { x } else { y } } else { x.max(y) }
}

fn int_binary<T>(op: Binary, a: &Lanes, b: &Lanes) -> Lanes
where
    T: Value + PrimInt + WrappingAdd + WrappingSub + WrappingMul,
{
    let (zero, bits) = (T::zero(), T::zero().count_zeros() as usize);
    // The only quotient that overflows is that of the least number by −1; it wraps to the least number.
    let overflow = move |x: T, y: T| if y.is_zero() { zero } else { x };
    let shift = move |y: T| y.to_usize().filter(|n| *n < bits);
    match op {
        Binary::Add => zip(a, b, |x: T, y| x.wrapping_add(&y)),
        Binary::Sub => zip(a, b, |x: T, y| x.wrapping_sub(&y)),
        Binary::Mul => zip(a, b, |x: T, y| x.wrapping_mul(&y)),
        Binary::Div => zip(a, b, |x: T, y| x.checked_div(&y).unwrap_or(overflow(x, y))),
        Binary::Rem => zip(a, b, |x: T, y| if x.checked_div(&y).is_some() { x % y } else { zero }),
        Binary::Max => zip(a, b, |x: T, y| x.max(y)),
        Binary::Min => zip(a, b, |x: T, y| x.min(y)),
        Binary::And => zip(a, b, |x: T, y| x & y),
        Binary::Or => zip(a, b, |x: T, y| x | y),
        Binary::Xor => zip(a, b, |x: T, y| x ^ y),
        Binary::Shl => zip(a, b, |x: T, y| shift(y).map_or(zero, |n| x << n)),
        Binary::Shr => zip(a, b, |x: T, y| shift(y).map_or(zero, |n| x >> n)),
        _ => comparison::<T>(op, a, b),
    }
}

fn bool_binary(op: Binary, a: &Lanes, b: &Lanes) -> Lanes {
    match op {
        Binary::And => zip(a, b, |x: bool, y| x & y),
        Binary::Or => zip(a, b, |x: bool, y| x | y),
        Binary::Xor => zip(a, b, |x: bool, y| x ^ y),
        _ => comparison::<bool>(op, a, b),
    }
}

fn comparison<T: Value + PartialOrd>(op: Binary, a: &Lanes, b: &Lanes) -> Lanes {
    match op {
        Binary::Lt => zip(a, b, |x: T, y| x < y),
        Binary::Le => zip(a, b, |x: T, y| x <= y),
        Binary::Gt => zip(a, b, |x: T, y| x > y),
        Binary::Ge => zip(a, b, |x: T, y| x >= y),
        Binary::Ne => zip(a, b, |x: T, y| x != y),
        _ => zip(a, b, |x: T, y| x == y),
    }
}

fn convert(from: Ty, to: Elem, a: &Lanes) -> Lanes {
    match from {
        Ty::F64 => convert_from::<f64>(to, a),
        Ty::I32 => convert_from::<i32>(to, a),
        Ty::I64 => convert_from::<i64>(to, a),
        Ty::U32 => convert_from::<u32>(to, a),
        Ty::U64 => convert_from::<u64>(to, a),
        Ty::Bool => convert_from::<u32>(to, &map(a, |x: bool| u32::from(x))),
        Ty::F32 | Ty::Call | Ty::Wide | Ty::Tuple => convert_from::<f32>(to, a),
    }
}

/// Rust's `as` has the semantics of the IR: integers wrap, floats truncate and saturate, NaN gives 0.
fn convert_from<A>(to: Elem, a: &Lanes) -> Lanes
where
    A: Value + Zero + PartialEq + AsPrimitive<f64> + AsPrimitive<f32> + AsPrimitive<i32>,
    A: AsPrimitive<i64> + AsPrimitive<u32> + AsPrimitive<u64>,
{
    let single = |x: A| -> f32 { x.as_() };
    match to {
        Elem::F64 => map(a, |x: A| -> f64 { x.as_() }),
        Elem::Bf16 => map(a, |x: A| bf16::from_f32(single(x)).to_f32()),
        Elem::F16 => map(a, |x: A| f16::from_f32(single(x)).to_f32()),
        Elem::I32 => map(a, |x: A| -> i32 { x.as_() }),
        Elem::I64 => map(a, |x: A| -> i64 { x.as_() }),
        Elem::U32 => map(a, |x: A| -> u32 { x.as_() }),
        Elem::U64 => map(a, |x: A| -> u64 { x.as_() }),
        Elem::Bool => map(a, |x: A| x != A::zero()),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => map(a, single),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus_dsl::scalar;

    const INTS: [i64; 16] = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, -1, -2, -7, i32::MIN as i64, i32::MAX as i64, i64::MIN];
    const FLOATS: [f64; 16] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        -2.5,
        0.1,
        1e-40,
        -1e-40,
        3e9,
        -3e9,
        1e20,
        1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    const TYPES: [Ty; 7] = [Ty::F64, Ty::F32, Ty::I32, Ty::I64, Ty::U32, Ty::U64, Ty::Bool];

    /// The awkward values of a type, as that type has them.
    fn values(ty: Ty) -> Vec<Literal> {
        match ty {
            Ty::Bool => vec![Literal::Bool(false), Literal::Bool(true)],
            _ if ty.is_float() => FLOATS.iter().map(|x| Literal::Float(scalar::round_to(ty, *x))).collect(),
            _ => INTS.iter().map(|x| Literal::Int(scalar::wrap(ty, i128::from(*x)))).collect(),
        }
    }

    fn lanes(ty: Ty, x: Literal) -> Lanes {
        [literal(ty, x); LANES]
    }

    /// Whether bits are equal; all NaN count as equal.
    fn same(ty: Ty, got: u64, want: Literal) -> bool {
        let is_nan = match ty {
            Ty::F32 => f32::from_lane(got).is_nan(),
            Ty::F64 => f64::from_lane(got).is_nan(),
            _ => false,
        };
        if is_nan { want.as_f64().is_nan() } else { got == literal(ty, want) }
    }

    #[test]
    fn binary_operations_are_those_of_the_program_ir() {
        use Binary::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, Rem, Shl, Shr, Sub, Xor};
        let both = [Add, Sub, Mul, Div, Max, Min, Lt, Le, Gt, Ge, Eq, Ne];
        let (ints, bools) = ([Rem, And, Or, Xor, Shl, Shr], [And, Or, Xor, Eq, Ne]);
        for ty in TYPES {
            let operations = match ty {
                Ty::Bool => bools.to_vec(),
                _ if ty.is_float() => both.to_vec(),
                _ => [&both[..], &ints].concat(),
            };
            for (op, x, y) in operations.iter().flat_map(|op| pairs(ty).map(move |(x, y)| (*op, x, y))) {
                let got = binary(op, ty, &lanes(ty, x), &lanes(ty, y))[5];
                let result = if op.is_comparison() { Ty::Bool } else { ty };
                let want = scalar::binary(op, ty, x, y);
                assert!(same(result, got, want), "{x:?} {op:?} {y:?}: {ty}: {got:#x}, want {want:?}");
            }
        }
    }

    fn pairs(ty: Ty) -> impl Iterator<Item = (Literal, Literal)> {
        values(ty).into_iter().flat_map(move |x| values(ty).into_iter().map(move |y| (x, y)))
    }

    #[test]
    fn native_functions_are_those_of_the_program_ir() {
        use Unary::{Abs, Floor, Neg, Not, Recip, Relu, Sign, Sqrt};
        for ty in TYPES {
            let functions = match ty {
                Ty::Bool => vec![Not],
                _ if ty.is_float() => vec![Neg, Abs, Sign, Sqrt, Recip, Relu, Floor],
                _ => vec![Neg, Not, Abs, Sign],
            };
            for (op, x) in functions.iter().flat_map(|op| values(ty).into_iter().map(move |x| (*op, x))) {
                let (got, want) = (unary(op, ty, &lanes(ty, x))[5], scalar::unary(op, ty, x));
                assert!(same(ty, got, want), "{op:?} {x:?}: {ty}: {got:#x}, want {want:?}");
            }
        }
    }

    #[test]
    fn conversions_are_those_of_the_program_ir() {
        for (from, to) in TYPES.into_iter().flat_map(|from| Elem::ALL.map(move |to| (from, to))) {
            for x in values(from) {
                let (got, want) = (convert(from, to, &lanes(from, x))[5], scalar::convert(from, to, x));
                assert!(same(to.value(), got, want), "{x:?}: {from} to {to}: {got:#x}, want {want:?}");
            }
        }
    }

    #[test]
    fn halves_are_packed_low_first_and_rounded() {
        let [x, y] = [1.0f32 + 1.0 / 512.0, -3.0].map(|x| [x.to_lane(); LANES]);
        for elem in [Elem::Bf16, Elem::F16] {
            let word = compute(Operation::Pack(elem), &x, &y, &[0; LANES]);
            let half = |h| f32::from_lane(compute(Operation::Unpack(elem, h), &word, &[0; LANES], &[0; LANES])[9]);
            let low = if elem == Elem::Bf16 { 1.0 } else { 1.0 + 1.0 / 512.0 };
            assert_eq!((half(Half::Low), half(Half::High)), (low, -3.0), "{elem}");
        }
    }

    #[test]
    fn fused_multiply_add_rounds_once() {
        let (a, c) = (1.0f32 + f32::EPSILON, -1.0f32);
        let [a, c] = [a, c].map(|x| [x.to_lane(); LANES]);
        let got = f32::from_lane(compute(Operation::Fma(Ty::F32), &a, &a, &c)[0]);
        assert_eq!(got, 2.0 * f32::EPSILON + f32::EPSILON * f32::EPSILON);
    }

    #[test]
    fn special_functions_flush_denormals() {
        let at = |op, x: f32| f32::from_lane(compute(op, &[x.to_lane(); LANES], &[0; LANES], &[0; LANES])[0]);
        assert_eq!(at(Operation::Exp2, -126.0), f32::MIN_POSITIVE);
        assert_eq!(at(Operation::Exp2, -126.5), 0.0);
        assert_eq!(at(Operation::Recip, 1e-40), f32::INFINITY);
        assert_eq!(at(Operation::Log2, 0.0), f32::NEG_INFINITY);
        assert!(at(Operation::Log2, -1.0).is_nan());
    }
}
