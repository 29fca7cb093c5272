//! Floats with a bound on what rounding may have done to them.

use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::scalar::{float_binary, float_unary};
use oplus_dsl::{Elem, Ty};

/// A float and its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The value without rounding.
    pub value: f64,
    /// The value with absolute values in every sum: no order of combination meets a larger intermediate.
    pub magnitude: f64,
    /// First-order bound on |computed − value|.
    pub error: f64,
}

/// Units in the last place, twice, that an elementary function may be wrong by.
const FUNCTION: f64 = 4.0;

impl Number {
    /// A number that is stored exactly.
    pub fn exact(value: f64) -> Number {
        Number { value, magnitude: value.abs(), error: 0.0 }
    }

    /// A number as an operand of sums that have not begun: earlier sums are done, so its magnitude is its own.
    #[must_use]
    pub fn settled(self) -> Number {
        Number { magnitude: self.value.abs(), ..self }
    }

    /// A number of which nothing is known: what was summed may have overflowed, what was compared may be otherwise.
    #[must_use]
    pub fn unknown(self) -> Number {
        Number { error: f64::INFINITY, ..self }
    }

    /// The result of an operation with `roundings` roundings of type `ty`.
    fn rounded(self, ty: Ty, roundings: f64) -> Number {
        let unit = unit(ty.elem().unwrap_or(Elem::F32));
        let whole = |x: f64| x.fract() == 0.0;
        let exact = whole(self.value) && whole(self.magnitude) && self.magnitude * unit <= 1.0;
        if exact && roundings <= 1.0 || self.magnitude.is_infinite() {
            return self;
        }
        if ty == Ty::F32 && self.magnitude > f64::from(f32::MAX) {
            return self.unknown();
        }
        let rounding = roundings * unit * self.magnitude;
        // For the smallest numbers the product underflows to 0, although there was a rounding.
        let rounding = if roundings > 0.0 { rounding.max(f64::from_bits(1)) } else { rounding };
        Number { error: self.error + rounding, ..self }
    }

    /// A function of one number.
    #[must_use]
    pub fn unary(op: Unary, ty: Ty, x: Number) -> Number {
        let value = float_unary(op, x.value);
        let (slope, roundings) = slope(op, x.value, value);
        let magnitude = if matches!(op, Unary::Neg | Unary::Abs) { x.magnitude } else { value.abs() };
        let error = if x.error == 0.0 { 0.0 } else { slope * x.error };
        let jumps = match op {
            Unary::Sign => x.error > 0.0 && x.value.abs() <= x.error,
            Unary::Floor => (x.value - x.error).floor() != (x.value + x.error).floor(),
            _ => false,
        };
        let error = if jumps { error + 2.0 } else { error };
        // exp(0), tanh(0), … are exact, as are exp(−∞) and its like.
        let roundings = if x.error == 0.0 && (x.value == 0.0 || x.value.is_infinite()) { 0.0 } else { roundings };
        Number { value, magnitude, error }.rounded(ty, roundings)
    }

    /// A function of two numbers that gives a number.
    #[must_use]
    pub fn binary(op: Binary, ty: Ty, l: Number, r: Number) -> Number {
        let value = float_binary(op, l.value, r.value);
        let times = |a: f64, b: f64| if a == 0.0 || b == 0.0 { 0.0 } else { a * b };
        let (magnitude, error, roundings) = match op {
            Binary::Add | Binary::Sub => (l.magnitude + r.magnitude, l.error + r.error, 1.0),
            Binary::Mul => {
                let error = times(l.magnitude, r.error) + times(l.error, r.magnitude) + times(l.error, r.error);
                // Zero times what may be infinite may be NaN.
                let unknown = l.error.is_infinite() || r.error.is_infinite();
                let error = if unknown { f64::INFINITY } else { error };
                (times(l.magnitude, r.magnitude), error, 1.0)
            }
            Binary::Div => {
                let (least, quotient) = (r.value.abs() - r.error, l.magnitude / r.value.abs());
                let error = if least > 0.0 { (l.error + times(quotient, r.error)) / least } else { f64::INFINITY };
                (quotient, if l.error + r.error == 0.0 { 0.0 } else { error }, FUNCTION)
            }
            Binary::Max | Binary::Min => {
                // An infinite limit that is not reached says nothing about the result.
                let says = |n: &&Number| n.value.is_finite() || !value.is_finite();
                let of = |part: fn(&Number) -> f64| [l, r].iter().filter(says).map(part).fold(0.0, f64::max);
                (of(|n| n.magnitude), of(|n| n.error), 0.0)
            }
            _ if l.error + r.error == 0.0 => (value.abs(), 0.0, FUNCTION),
            _ => (value.abs(), f64::INFINITY, FUNCTION),
        };
        Number { value, magnitude, error }.rounded(ty, roundings)
    }

    /// The conversion to an element type.
    #[must_use]
    pub fn converted(self, elem: Elem) -> Number {
        let exact = self.error == 0.0 && oplus_dsl::scalar::round(elem, self.value) == self.value;
        let rounding = if exact || self.value.is_infinite() { 0.0 } else { unit(elem) * self.value.abs() };
        Number { error: self.error + rounding, ..self }
    }

    /// Whether rounding may change how it compares with another number.
    pub fn may_equal(self, other: Number) -> bool {
        let error = self.error + other.error;
        error > 0.0 && (self.value - other.value).abs() <= super::SLACK * error
    }
}

/// The relative error of one rounding to an element type; 0 for types that are not floats.
pub fn unit(elem: Elem) -> f64 {
    match elem {
        Elem::F64 => 2f64.powi(-53),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => 2f64.powi(-24),
        Elem::F16 => 2f64.powi(-11),
        Elem::Bf16 => 2f64.powi(-8),
        _ => 0.0,
    }
}

/// The absolute value of the derivative of y = op x, and the roundings that computing y takes.
fn slope(op: Unary, x: f64, y: f64) -> (f64, f64) {
    match op {
        Unary::Neg | Unary::Not | Unary::Abs | Unary::Relu => (1.0, 0.0),
        Unary::Sign | Unary::Floor => (0.0, 0.0),
        Unary::Exp => (y, FUNCTION),
        Unary::Exp2 => (y * std::f64::consts::LN_2, FUNCTION),
        Unary::Ln => (1.0 / x.abs(), FUNCTION),
        Unary::Log1p => (1.0 / (1.0 + x).abs(), FUNCTION),
        Unary::Sqrt => (0.5 / y, FUNCTION),
        Unary::Rsqrt => (0.5 * y / x.abs(), FUNCTION),
        Unary::Recip => (y * y, FUNCTION),
        Unary::Tanh => (1.0 - y * y, FUNCTION),
        Unary::Sigmoid => (y * (1.0 - y), FUNCTION),
        Unary::Softplus => (1.0, FUNCTION),
        Unary::Silu => (1.1, 2.0 * FUNCTION),
        Unary::Sin => (x.cos().abs(), FUNCTION),
        Unary::Cos => (x.sin().abs(), FUNCTION),
        Unary::Powi(n) => (f64::from(n).abs() * x.abs().powi(n - 1), f64::from(n).abs() + FUNCTION),
    }
}
