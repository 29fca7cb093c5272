//! Arithmetic on constants: LLVM folds it, and must come to what the program IR defines.

use oplus_codegen::build::Builder;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Expr, Memory, Operand, ParamKind};
use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty, scalar};
use std::collections::HashMap;

const INTS: [i64; 12] = [0, 1, 2, 5, 31, 32, 64, -1, -7, i32::MIN as i64, i64::MIN, i64::MAX];
const FLOATS: [f64; 10] = [0.0, -0.0, 1.0, -2.5, 0.1, 3.0e38, 1.0e-40, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

/// The constants that a kernel of computations on constants stores, as 64 bits each.
fn stored(computations: &[(Ty, Expr)]) -> Vec<u64> {
    let mut b = Builder::new("folded", 32);
    let y = b.param("y", ParamKind::Write(Elem::U64));
    for (k, (ty, expr)) in (0..).zip(computations) {
        let value = b.let_(*ty, *expr);
        let bits = match ty {
            Ty::F64 => b.bits(Ty::U64, value),
            Ty::F32 => {
                let bits = b.bits(Ty::U32, value);
                b.convert(Ty::U64, bits)
            }
            _ => b.convert(Ty::U64, value),
        };
        b.store(Memory::Global(y), Operand::i64(k), &[bits], None);
    }
    let ptx = oplus_llvm::compile(&b.finish(), Isa::Sm80).unwrap();
    let mut registers: HashMap<&str, u64> = HashMap::new();
    let mut values = vec![None; computations.len()];
    for line in ptx.lines() {
        let words: Vec<&str> = line.split([' ', '\t', ',', ';']).filter(|w| !w.is_empty()).collect();
        match words[..] {
            ["mov.b64", register, value] if register.starts_with("%rd") => {
                registers.insert(register, value.parse::<i64>().unwrap() as u64);
            }
            ["st.global.b64", address, register] => {
                let offset = address.trim_end_matches(']').split_once('+').map_or(0, |(_, n)| n.parse().unwrap());
                values[offset / 8] = registers.get(register).copied();
            }
            _ => {}
        }
    }
    let missing = values.iter().position(Option::is_none);
    assert!(missing.is_none(), "{:?} is not folded in\n{ptx}", computations[missing.unwrap()]);
    values.into_iter().flatten().collect()
}

/// The bits of a value of a type, as [`stored`] gives them.
fn bits(ty: Ty, value: Literal) -> u64 {
    match (ty, value) {
        (Ty::F32, Literal::Float(x)) => u64::from((x as f32).to_bits()),
        (_, Literal::Float(x)) => x.to_bits(),
        (Ty::I32 | Ty::U32, Literal::Int(x)) if ty == Ty::U32 => x as u32 as u64,
        (_, Literal::Int(x)) => x as u64,
        (_, Literal::Bool(x)) => u64::from(x),
    }
}

fn is_nan(ty: Ty, bits: u64) -> bool {
    match ty {
        Ty::F32 => f32::from_bits(bits as u32).is_nan(),
        Ty::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

/// Compiles and evaluates every computation, and compares.
fn compare(cases: &[(Ty, Expr, Literal)]) {
    let computations: Vec<(Ty, Expr)> = cases.iter().map(|(ty, expr, _)| (*ty, *expr)).collect();
    for ((ty, expr, expected), found) in cases.iter().zip(stored(&computations)) {
        let expected = bits(*ty, *expected);
        let same = found == expected || is_nan(*ty, found) && is_nan(*ty, expected);
        assert!(same, "{expr:?}: {found:#x}, not {expected:#x}");
    }
}

/// The values that a type is tried with.
fn samples(ty: Ty) -> Vec<Literal> {
    match ty {
        Ty::Bool => [false, true].map(Literal::Bool).to_vec(),
        _ if ty.is_float() => FLOATS.map(|x| Literal::Float(scalar::round_to(ty, x))).to_vec(),
        _ => INTS.map(|x| Literal::Int(scalar::wrap(ty, x.into()))).to_vec(),
    }
}

fn all_binary(ty: Ty, ops: &[Binary]) {
    for op in ops {
        let result = if op.is_comparison() { Ty::Bool } else { ty };
        let pairs = samples(ty).into_iter().flat_map(|l| samples(ty).into_iter().map(move |r| (l, r)));
        let cases: Vec<_> = pairs
            .map(|(l, r)| {
                let expr = Expr::Binary(*op, Operand::Const(ty, l), Operand::Const(ty, r));
                (result, expr, scalar::binary(*op, ty, l, r))
            })
            .collect();
        compare(&cases);
    }
}

fn all_unary(ty: Ty, ops: &[Unary]) {
    for op in ops {
        let case = |x| (ty, Expr::Unary(*op, Operand::Const(ty, x)), scalar::unary(*op, ty, x));
        compare(&samples(ty).into_iter().map(case).collect::<Vec<_>>());
    }
}

#[test]
fn integers() {
    use Binary::*;
    for ty in [Ty::I32, Ty::I64, Ty::U32, Ty::U64] {
        all_binary(ty, &[Add, Sub, Mul, Div, Rem, Max, Min, Lt, Le, Gt, Ge, Eq, Ne, And, Or, Xor, Shl, Shr]);
        all_unary(ty, &[Unary::Neg, Unary::Not, Unary::Abs, Unary::Sign]);
    }
}

#[test]
fn floats() {
    use Binary::*;
    for ty in [Ty::F32, Ty::F64] {
        all_binary(ty, &[Add, Sub, Mul, Div, Lt, Le, Gt, Ge, Eq, Ne]);
        all_unary(ty, &[Unary::Neg, Unary::Abs, Unary::Sign, Unary::Recip, Unary::Floor]);
    }
}

#[test]
fn truth_values() {
    all_binary(Ty::Bool, &[Binary::And, Binary::Or, Binary::Xor, Binary::Eq, Binary::Ne]);
    all_unary(Ty::Bool, &[Unary::Not]);
}

#[test]
fn conversions() {
    let wide = [Elem::F64, Elem::F32, Elem::I32, Elem::I64, Elem::U32, Elem::U64, Elem::Bool];
    for from in [Ty::F64, Ty::F32, Ty::I32, Ty::I64, Ty::U32, Ty::U64, Ty::Bool] {
        for to in wide {
            // Floats become integers, and half precision, by PTX instructions that LLVM does not look into.
            if from.is_float() && to.value().is_int() {
                continue;
            }
            let case = |x| (to.value(), Expr::Convert(to, Operand::Const(from, x)), scalar::convert(from, to, x));
            compare(&samples(from).into_iter().map(case).collect::<Vec<_>>());
        }
    }
}
