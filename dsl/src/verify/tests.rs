use crate::ir::{Domain, Field, Literal, Operator};
use crate::parse::parse;
use crate::testing::texts::SUMS;

use super::*;

/// The errors of the program with one piece of its text replaced.
fn errors(from: &str, to: &str) -> Vec<String> {
    assert!(SUMS.contains(from), "{from}");
    let program = parse(&SUMS.replacen(from, to, 1)).unwrap();
    verify(&program).err().unwrap_or_default().iter().map(VerifyError::to_string).collect()
}

/// Replacing a piece of the text gives exactly this error.
fn check(from: &str, to: &str, expected: &str) {
    assert_eq!(errors(from, to), [expected], "{from} → {to}");
}

#[test]
fn a_valid_program_verifies() {
    assert_eq!(verify(&parse(SUMS).unwrap()), Ok(()));
}

#[test]
fn declarations_are_checked() {
    check("axes B, L", "axes B, L, L", "axis `L`: the name is already taken");
    check("param x: f32[B, L];", "param x: f32[B, L]; param x: f32;", "parameter `x`: the name is already taken");
    check("param x: f32[B, L];", "param x: f32[B, L]; param k: f32[B, B];", "parameter `k`: axis `B` occurs twice");
    check(
        "param x: f32[B, L];",
        "param x: f32[B, L]; param k: i32 = 0.5;",
        "parameter `k`: the literal 0.5 is not of type `i32`",
    );
    check("param x: f32[B, L];", "param x: f32[B, L]; param k: f32[#9];", "parameter `k`: there is no axis number 9");
    check("output total: f32[B]", "output y: f32[B]", "output `y`: the name is already taken");
    check(
        "output total: f32[B]",
        "output total: f32",
        "output `total`: the value varies along axis `B`, which the output lacks",
    );
    check("output total: f32[B]", "output total: i32[B]", "output `total`: the value is `f32`, not `i32`");
    check("total: f32[B] = %4", "total: f32[B] = %9", "output `total`: there is no value number 9");
}

#[test]
fn operators_are_checked() {
    check("identity (0.0)", "identity (0)", "operator `Sum`, field `s`: the literal 0 is not of type `f32`");
    check("identity (0.0)", "identity ()", "operator `Sum`: there are 1 field(s), but the identity has 0 parts");
    check("combine (%2)", "combine (%3)", "operator `Sum`, field `s`: there is no value number 3");
    check("combine (%2)", "combine (%2, %2)", "operator `Sum`: there are 1 field(s), but the combination has 2 parts");
    check("%2: f32 = %0 + %1", "%2: bool = %0 < %1", "operator `Sum`, field `s`: the value is `bool`, not `f32`");
    check("%0 + %1", "%0 + %2", "operator `Sum`, node %2 (`+`): operand %2 is not an earlier node");
    check("%0 + %1", "%0 & %1", "operator `Sum`, node %2 (`&`): `&` takes integers or bools, not `f32`");
    check(
        "identity (0.0);",
        "identity (0.0); gauge #1;",
        "operator `Sum`: the gauge must be a floating-point field of the operator",
    );
    check(
        "%1: f32 = input r.s",
        "%1: f32 = input r.#1",
        "operator `Sum`, node %1 (`input`): there is no operand field number 2",
    );
}

#[test]
fn nodes_are_checked() {
    check("%0: f32[B, L] =", "%0: f32[B] =", "node %0 (`param`): the axes are [B], but the operands give [B, L]");
    check("%3: f32 = const 0.0", "%3: f32 = const 1", "node %3 (`const`): the literal 1 is not of type `f32`");
    let wrong_type = "node %2 (`field`): the type is `f64`, but the operands give `f32`";
    assert_eq!(errors("%2: f32[B, L] =", "%2: f64[B, L] =")[0], wrong_type);
    check("Sum, (%0)", "Sum, (%0, %0)", "node %1 (`scan`): operator `Sum` has 1 field(s), but 2 elements are given");
    check(
        "Sum, (%0)",
        "Sum, (%0), init (%0)",
        "node %1 (`scan`): the initial state of `scan` must not vary along axis `L`",
    );
    check(
        "last(L, %2, %3)",
        "last(L, %2, %0)",
        "node %4 (`last`): the value for an empty axis of `last` must not vary along axis `L`",
    );
    check(
        "%2: f32[B, L] = %1.s",
        "%2: f32[B, L] = exp(%1)",
        "node %2 (`exp`): `exp` cannot take the state of a scan or reduction: take one of its fields",
    );
    check("%1.s", "%0.#0", "node %2 (`field`): a field can only be taken of a scan or a reduction");
    check("%1.s", "%1.#4", "node %2 (`field`): there is no field number 4");
    check(
        "(L, Sum, (%0));\n    %2: f32[B, L] = %1.s",
        "(L, #1, (%0));\n    %2: f32[B, L] = %1.#0",
        "node %1 (`scan`): there is no operator number 1",
    );
    check("scan(L, Sum", "scan(#5, Sum", "node %1 (`scan`): there is no axis number 5");
    check("param x;\n", "input #0;\n", "node %0 (`input`): `input` cannot be used in a program");
}

#[test]
fn all_errors_come_at_once() {
    let text = SUMS.replace("identity (0.0)", "identity (true)").replace("param x;\n", "param #3;\n");
    let errors = verify(&parse(&text).unwrap()).unwrap_err();
    let subjects: Vec<Subject> = errors.iter().map(|e| e.subject).collect();
    assert_eq!(subjects, [Subject::Field(OperatorId(0), 0), Subject::Node(Value(0))]);
}

#[test]
fn an_operator_has_at_most_32_fields() {
    let mut program = parse(SUMS).unwrap();
    let fields = (0..33).map(|k| Field { name: format!("f{k}"), ty: Ty::F32 }).collect();
    let identity = vec![Literal::Float(0.0); 33];
    let body = vec![Node { op: Op::Const(Literal::Float(0.0)), ty: Ty::F32, axes: AxisSet::EMPTY }];
    let (combine, domain) = (vec![Value(0); 33], Domain::default());
    program.operators.push(Operator { name: "Wide".to_owned(), fields, identity, body, combine, gauge: None, domain });
    let errors = verify(&program).unwrap_err();
    assert_eq!(errors[0].to_string(), "operator `Wide`: an operator has 1 to 32 fields, not 33");
}
