//! The table of derivatives, operation by operation.

use oplus_dsl::adjoint::{AdjointError, adjoint};
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Binary, Program, Unary, Value};
use oplus_dsl::{Elem, Ty};

use crate::harness::Case;
use crate::programs::Draft;

/// y = f(x) for a vector x, or y = f(l, r).
fn program(params: &[&str], f: impl FnOnce(&mut Builder, &[Value]) -> Value) -> Program {
    let mut p = Draft::new("rule");
    let params: Vec<Value> = params.iter().map(|name| p.param(name, "T")).collect();
    let y = f(&mut p.0, &params);
    p.output("y", "T", y);
    p.finish()
}

/// Points at which a function is smooth, away from its kinks and poles.
fn points(op: Unary) -> [f64; 4] {
    match op {
        Unary::Ln | Unary::Sqrt | Unary::Rsqrt => [0.25, 0.5, 1.0, 3.0],
        Unary::Log1p => [-0.5, 0.25, 1.0, 3.0],
        _ => [-1.75, -0.5, 0.25, 1.5],
    }
}

#[test]
fn every_unary_function_has_its_derivative() {
    let powers = [-3, -1, 0, 1, 2, 5].map(Unary::Powi);
    let floats = Unary::all().filter(|op| *op != Unary::Not).chain(powers);
    for op in floats {
        let program = program(&["x"], |b, x| b.unary(op, x[0]).unwrap());
        let has_none = matches!(op, Unary::Sign | Unary::Floor | Unary::Powi(0));
        match adjoint(&program) {
            Err(AdjointError::NothingToDifferentiate { .. }) => assert!(has_none, "{op:?}"),
            Ok(_) => Case::new(&program, &[("T", 4)], 0).with("x", points(op)).check(),
            Err(error) => panic!("{op:?}: {error}"),
        }
    }
}

#[test]
fn the_lowest_power_has_a_derivative() {
    let program = program(&["x"], |b, x| b.unary(Unary::Powi(i32::MIN), x[0]).unwrap());
    Case::new(&program, &[("T", 2)], 0).with("x", [1.0, -1.0]).check_exact();
}

#[test]
fn every_binary_function_has_its_derivatives() {
    use Binary::{Add, Div, Max, Min, Mul, Rem, Sub};
    for op in Binary::all() {
        let is_differentiable = matches!(op, Add | Sub | Mul | Div | Rem | Max | Min);
        let mut b = Builder::new("typed");
        let x = b.param("x", &[], Elem::F64, None).unwrap();
        match b.binary(op, x, x).map(|y| b.ty(y).unwrap()) {
            Ok(ty) => assert_eq!(ty == Ty::F64, is_differentiable, "{op:?}"),
            Err(_) => assert!(!is_differentiable, "{op:?}"),
        }
        if is_differentiable {
            let program = program(&["l", "r"], |b, x| b.binary(op, x[0], x[1]).unwrap());
            let case = Case::new(&program, &[("T", 4)], 0);
            case.with("l", [-7.3, 2.6, 0.5, -0.4]).with("r", [2.0, -1.1, 3.0, -0.7]).check();
        }
    }
}

#[test]
fn choices_and_conversions_have_their_derivatives() {
    let choice = program(&["l", "r"], |b, x| {
        let condition = b.binary(Binary::Lt, x[0], x[1]).unwrap();
        let product = b.binary(Binary::Mul, x[0], x[1]).unwrap();
        b.select(condition, product, x[0]).unwrap()
    });
    Case::new(&choice, &[("T", 6)], 1).check();
    let through = program(&["x"], |b, x| {
        let narrow = b.convert(Elem::F32, x[0]).unwrap();
        let half = b.convert(Elem::Bf16, narrow).unwrap();
        b.convert(Elem::F64, half).unwrap()
    });
    Case::new(&through, &[("T", 3)], 2).check_exact();
    let counted = program(&["x"], |b, x| {
        let whole = b.convert(Elem::I32, x[0]).unwrap();
        b.convert(Elem::F64, whole).unwrap()
    });
    assert!(matches!(adjoint(&counted), Err(AdjointError::NothingToDifferentiate { .. })));
}

/// exp(x − m) guarded against −∞ − −∞ is differentiated as exp(x − m), also where x = m.
#[test]
fn guarded_weights_are_smooth() {
    let program = program(&["x", "m"], |b, x| {
        let same = b.binary(Binary::Eq, x[0], x[1]).unwrap();
        let difference = b.binary(Binary::Sub, x[0], x[1]).unwrap();
        let exp = b.unary(Unary::Exp, difference).unwrap();
        let one = b.float(Ty::F64, 1.0).unwrap();
        b.select(same, one, exp).unwrap()
    });
    Case::new(&program, &[("T", 2)], 0).with("x", [0.5, 0.25]).with("m", [0.5, 1.0]).check();
}
