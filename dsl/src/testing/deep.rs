//! Programs far deeper and wider than any that is written by hand.

use crate::build::{Builder, Built, Direction};
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, Binary, Field, Literal, Operator, Program, Unary, Value};
use crate::testing::operators;

/// How a program of many operations is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deep {
    /// aₙ = aₙ₋₁·x + x, each from the one before.
    Chain,
    /// Maps of all kinds, each of the one before: functions, selections, conversions.
    Maps,
    /// aₙ = aₙ₋₁·aₙ₋₁, so that the last one has 2ⁿ factors.
    Squares,
    /// Conversions to bf16 and back, each of the one before.
    Conversions,
    /// A sum of products that are independent of each other.
    Wide,
    /// Every value is a shift of the one before.
    Shifts,
    /// Every value is the running sum of the one before.
    Scans,
    /// Every value is scaled by the total of the one before.
    Totals,
    /// One scan whose `combine` has many operations.
    Combine,
    /// As many outputs as operations.
    Outputs,
}

impl Deep {
    /// Every kind of deep program.
    pub const ALL: [Deep; 10] = [
        Deep::Chain,
        Deep::Maps,
        Deep::Squares,
        Deep::Conversions,
        Deep::Wide,
        Deep::Shifts,
        Deep::Scans,
        Deep::Totals,
        Deep::Combine,
        Deep::Outputs,
    ];

    /// A valid program of about `n` operations over T, with a parameter x and an output y.
    pub fn program(self, n: usize) -> Program {
        let mut b = Builder::new("deep");
        let t = b.axis("T").expect(VALID);
        let x = b.param("x", &[t], Elem::F32, None).expect(VALID);
        if self == Deep::Combine {
            let operator = b.operator(running_maximum(n));
            let y = b.scan(t, operator, &[x], &[], Direction::default()).expect(VALID)[0];
            b.output("y", &[t], Elem::F32, y).expect(VALID);
            return b.finish();
        }
        let (mut y, mut k) = (x, 0);
        while b.program().nodes.len() < n {
            y = self.next(&mut b, t, (x, y), k).expect(VALID);
            k += 1;
            if self == Deep::Outputs {
                b.output(&format!("y{k}"), &[t], Elem::F32, y).expect(VALID);
            }
        }
        b.output("y", &[t], Elem::F32, y).expect(VALID);
        b.finish()
    }

    /// The value after y.
    fn next(self, b: &mut Builder, t: Axis, (x, y): (Value, Value), k: usize) -> Built {
        match self {
            Deep::Maps => map(b, k, x, y),
            Deep::Squares => b.binary(Binary::Mul, y, y),
            Deep::Conversions => b.convert(if k.is_multiple_of(2) { Elem::Bf16 } else { Elem::F16 }, y),
            Deep::Wide => {
                let factor = b.float(Ty::F32, k as f64)?;
                let product = b.binary(Binary::Mul, x, factor)?;
                b.binary(Binary::Add, y, product)
            }
            Deep::Shifts => {
                let zero = b.float(Ty::F32, 0.0)?;
                b.shift(t, 1, y, zero)
            }
            Deep::Scans => {
                let sum = b.operator(operators::sum(Ty::F32));
                Ok(b.scan(t, sum, &[y], &[], Direction::default())?[0])
            }
            Deep::Totals => {
                let sum = b.operator(operators::sum(Ty::F32));
                let total = b.reduce(t, sum, &[y])?[0];
                b.binary(Binary::Mul, x, total)
            }
            Deep::Chain | Deep::Outputs | Deep::Combine => {
                let product = b.binary(Binary::Mul, y, x)?;
                b.binary(Binary::Add, product, x)
            }
        }
    }
}

const VALID: &str = "the program stays valid";

fn map(b: &mut Builder, k: usize, x: Value, y: Value) -> Built {
    match k % 6 {
        0 => b.unary(Unary::Tanh, y),
        1 => b.binary(Binary::Sub, x, y),
        2 => {
            let zero = b.float(Ty::F32, k as f64 / 1e6)?;
            let condition = b.binary(Binary::Lt, y, zero)?;
            b.select(condition, x, y)
        }
        3 => b.convert(Elem::Bf16, y),
        4 => b.unary(Unary::Sigmoid, y),
        _ => b.binary(Binary::Max, y, x),
    }
}

/// max(l, r), taken again and again of the result and one of the two.
fn running_maximum(n: usize) -> Operator {
    let mut body = Builder::body(vec![Field { name: "m".to_owned(), ty: Ty::F32 }]);
    let (l, r) = body.inputs().expect(VALID);
    let mut m = body.binary(Binary::Max, l[0], r[0]).expect(VALID);
    for k in 0..n {
        m = body.binary(Binary::Max, m, if k % 2 == 0 { l[0] } else { r[0] }).expect(VALID);
    }
    body.finish_operator("Maximum", vec![Literal::Float(f64::NEG_INFINITY)], &[m], None).expect(VALID)
}
