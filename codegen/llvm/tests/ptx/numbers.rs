//! Arithmetic: which instructions it becomes.

use crate::check::{contains, count, ptx};
use oplus_codegen::build::Builder;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Expr, Kernel, Memory, Operand, ParamKind};
use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};

const BINARY: [Binary; 18] = {
    use Binary::*;
    [Add, Sub, Mul, Div, Rem, Max, Min, Lt, Le, Gt, Ge, Eq, Ne, And, Or, Xor, Shl, Shr]
};

/// Stores every `function` of the first three elements of `x`, one after the other.
fn functions(name: &str, ty: Ty, functions: &[(Ty, Expr)]) -> Kernel {
    let mut b = Builder::new(name, 32);
    let x = b.param("x", ParamKind::Read(ty.elem().unwrap()));
    // The three registers that the expressions name come first.
    let operands: Vec<Operand> = (0..3).map(|i| b.load1(Memory::Global(x), Operand::i64(i))).collect();
    assert_eq!(operands, [operand(0), operand(1), operand(2)]);
    for (k, (ty, function)) in functions.iter().enumerate() {
        let y = b.param(format!("y{k}"), ParamKind::Write(ty.elem().unwrap()));
        let value = b.let_(*ty, *function);
        b.store(Memory::Global(y), Operand::i64(0), &[value], None);
    }
    b.finish()
}

fn operand(k: u32) -> Operand {
    oplus_codegen::tile::Reg(k).into()
}

fn binary(ty: Ty, op: Binary) -> (Ty, Expr) {
    (if op.is_comparison() { Ty::Bool } else { ty }, Expr::Binary(op, operand(0), operand(1)))
}

#[test]
fn float_arithmetic_is_rounded_to_nearest_and_never_contracted() {
    for (ty, width) in [(Ty::F32, "f32"), (Ty::F64, "f64")] {
        use Binary::{Add, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Sub};
        let mut list: Vec<_> = [Add, Sub, Mul, Div, Max, Min, Lt, Le, Gt, Ge, Eq, Ne].map(|op| binary(ty, op)).to_vec();
        let unary = [Unary::Neg, Unary::Abs, Unary::Sqrt, Unary::Recip, Unary::Floor, Unary::Relu, Unary::Sign];
        list.extend(unary.map(|op| (ty, Expr::Unary(op, operand(0)))));
        list.push((ty, Expr::Fma(operand(0), operand(1), operand(2))));
        let text = ptx(&functions("floats", ty, &list), Isa::Sm80);
        for what in ["add.rn", "sub.rn", "mul.rn", "div.rn", "max", "min", "sqrt.rn", "rcp.rn", "fma.rn"] {
            contains(&text, &format!("{what}.{width}"));
        }
        assert_eq!((count(&text, "fma"), count(&text, "approx"), count(&text, "ftz")), (1, 0, 0), "{text}");
    }
}

#[test]
fn a_product_and_a_sum_stay_two_roundings() {
    let mut b = Builder::new("two_roundings", 32);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let [p, q] = [0, 1].map(|i| b.load1(Memory::Global(x), Operand::i64(i)));
    let product = b.mul(p, q);
    let sum = b.add(product, p);
    b.store(Memory::Global(y), Operand::i64(0), &[sum], None);
    let text = ptx(&b.finish(), Isa::Sm90a);
    contains(&text, "mul.rn.f32");
    contains(&text, "add.rn.f32");
}

#[test]
fn special_functions_are_single_instructions() {
    let list = [Expr::Exp2Fast, Expr::Log2Fast, Expr::TanhFast, Expr::RecipFast].map(|f| (Ty::F32, f(operand(0))));
    let text = ptx(&functions("fast", Ty::F32, &list), Isa::Sm80);
    for what in ["ex2.approx.ftz.f32", "lg2.approx.f32", "tanh.approx.f32", "rcp.approx.ftz.f32"] {
        contains(&text, what);
    }
}

#[test]
fn integers_have_every_operation() {
    for ty in [Ty::I32, Ty::I64, Ty::U32, Ty::U64] {
        let mut list: Vec<_> = BINARY.map(|op| binary(ty, op)).to_vec();
        let unary = [Unary::Neg, Unary::Not, Unary::Abs, Unary::Sign, Unary::Relu];
        list.extend(unary.map(|op| (ty, Expr::Unary(op, operand(0)))));
        list.push((ty, Expr::Select(Operand::bool(true), operand(0), operand(1))));
        let text = ptx(&functions("integers", ty, &list), Isa::Sm80);
        let kind = if matches!(ty, Ty::I32 | Ty::I64) { "s" } else { "u" };
        for what in ["div", "max", "min"] {
            contains(&text, &format!("{what}.{kind}"));
        }
    }
}

#[test]
fn truth_values_have_logic() {
    let mut list =
        [Binary::And, Binary::Or, Binary::Xor, Binary::Eq, Binary::Ne].map(|op| binary(Ty::Bool, op)).to_vec();
    list.push((Ty::Bool, Expr::Unary(Unary::Not, operand(0))));
    let text = ptx(&functions("truth", Ty::Bool, &list), Isa::Sm80);
    assert_eq!(count(&text, "st.global"), 6, "{text}");
}

#[test]
fn every_type_converts_to_every_other() {
    for from in [Ty::F32, Ty::F64, Ty::I32, Ty::I64, Ty::U32, Ty::U64, Ty::Bool] {
        let list: Vec<_> = Elem::ALL.iter().map(|elem| (elem.value(), Expr::Convert(*elem, operand(0)))).collect();
        let text = ptx(&functions("convert", from, &list), Isa::Sm80);
        assert_eq!(count(&text, "st.global"), 9, "{text}");
        contains(&text, "cvt.rn.bf16x2.f32");
        contains(&text, "cvt.rn.f16x2.f32");
        assert_eq!(count(&text, "cvt.rzi"), if from.is_float() { 4 } else { 0 }, "{text}");
    }
}

#[test]
fn bits_change_their_type_and_nothing_else() {
    for (from, to) in [(Ty::F32, Ty::U32), (Ty::I32, Ty::F32), (Ty::F64, Ty::I64), (Ty::U64, Ty::F64)] {
        let text = ptx(&functions("bits", from, &[(to, Expr::Bits(operand(0)))]), Isa::Sm90a);
        assert_eq!((count(&text, "cvt"), count(&text, "st.global.b")), (0, 1), "{text}");
    }
}
