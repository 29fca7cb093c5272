//! The rows schedule: awkward lengths, teams of every shape, directions, layouts, element types, operators.

use oplus_codegen::schedules::{Rows, Schedule};
use oplus_codegen::simulate::Order;
use oplus_dsl::build::{Builder, Direction};
use oplus_dsl::ir::{Axis, Binary, Operator, Program};
use oplus_dsl::testing::operators;
use oplus_dsl::typing::TypeError;
use oplus_dsl::{Elem, Ty};

use crate::device::Placement;
use crate::oracle::{Case, program};

/// Two warps of a row, tiles of 256 elements.
const BLOCK: Rows = Rows { warps: 2, row_warps: 2, lanes: 32, rows: 1, vector: 4, vectors: 1 };

/// A scan of an operator over tensors of an element type: with an initial state, every state before and after, and
/// the last one. Whole numbers are taken modulo 3, the states of the automaton.
pub(crate) fn scan(operator: &Operator, reverse: bool, elem: Option<Elem>) -> Program {
    along(operator, reverse, elem, &["B", "L"])
}

/// A scan of an operator, as in [`scan`], over tensors with these axes, one of them L.
pub(crate) fn along(operator: &Operator, reverse: bool, elem: Option<Elem>, axes: &[&str; 2]) -> Program {
    let mut b = Builder::new(&operator.name);
    let all = axes.map(|name| b.axis(name).expect("a new axis"));
    let (axis, batch) = if axes[0] == "L" { (all[0], all[1]) } else { (all[1], all[0]) };
    let elem = |ty: Ty| elem.filter(|_| ty.is_float()).or(ty.elem()).expect("a scalar");
    let input = |b: &mut Builder, name: &str, axes: &[Axis], ty: Ty| {
        let value = b.param(name, axes, elem(ty), None)?;
        if !ty.is_int() {
            return Ok(value);
        }
        let three = b.number(ty, 3)?;
        b.binary(Binary::Rem, value, three)
    };
    let mut build = || {
        let (mut elements, mut init) = (vec![], vec![]);
        for field in &operator.fields {
            elements.push(input(&mut b, &field.name, &all, field.ty)?);
            init.push(input(&mut b, &format!("{}_init", field.name), &[batch], field.ty)?);
        }
        let id = b.operator(operator.clone());
        let after = b.scan(axis, id, &elements, &init, Direction { reverse, exclusive: false })?;
        let before = b.scan(axis, id, &elements, &init, Direction { reverse, exclusive: true })?;
        for (k, field) in operator.fields.iter().enumerate() {
            let (name, elem) = (&field.name, elem(field.ty));
            let last = if reverse { b.first(axis, after[k], init[k])? } else { b.last(axis, after[k], init[k])? };
            b.output(&format!("{name}_after"), &all, elem, after[k])?;
            b.output(&format!("{name}_before"), &all, elem, before[k])?;
            b.output(&format!("{name}_last"), &[batch], elem, last)?;
        }
        Ok::<(), TypeError>(())
    };
    build().expect("is well typed");
    b.finish()
}

fn affine(reverse: bool) -> Program {
    scan(&operators::affine(Ty::F32), reverse, None)
}

fn check(program: &Program, sizes: &[usize], placement: Placement, schedule: Rows) {
    Case { program, sizes, placement, order: Order::Random(3) }.check(Schedule::Rows(schedule));
}

#[test]
fn awkward_lengths() {
    for reverse in [false, true] {
        for len in [0, 1, 2, 3, 4, 127, 128, 255, 256, 257, 509, 512, 1021] {
            check(&affine(reverse), &[2, len], Placement::Padded, BLOCK);
        }
    }
}

#[test]
fn teams_of_every_shape() {
    for (warps, row_warps, lanes, rows, vector, vectors) in [
        (1, 1, 32, 1, 4, 2),
        (2, 1, 32, 3, 2, 1),
        (4, 2, 32, 2, 4, 1),
        (1, 1, 8, 2, 4, 2),
        (2, 1, 1, 1, 4, 3),
        (1, 1, 16, 1, 1, 1),
        (3, 3, 32, 1, 1, 3),
    ] {
        let schedule = Rows { warps, row_warps, lanes, rows, vector, vectors };
        for reverse in [false, true] {
            check(&affine(reverse), &[7, 301], Placement::Padded, schedule);
        }
    }
}

#[test]
fn every_layout() {
    for (placement, vector) in
        [(Placement::Contiguous, 4), (Placement::Padded, 4), (Placement::Misaligned, 1), (Placement::Strided, 1)]
    {
        check(&affine(true), &[3, 260], placement, Rows { vector, ..BLOCK });
    }
}

#[test]
fn every_operator_in_both_directions() {
    for operator in operators::all(Ty::F32) {
        for reverse in [false, true] {
            let program = scan(&operator, reverse, None);
            check(&program, &[3, 97], Placement::Padded, BLOCK);
            let short = Rows { warps: 1, row_warps: 1, lanes: 8, rows: 2, vector: 2, vectors: 1 };
            check(&program, &[5, 19], Placement::Padded, short);
        }
    }
}

#[test]
fn every_element_type() {
    for (elem, vector) in [(Elem::F64, 2), (Elem::F16, 8), (Elem::Bf16, 8), (Elem::Bf16, 4)] {
        let program = scan(&operators::affine(elem.value()), false, Some(elem));
        check(&program, &[3, 333], Placement::Padded, Rows { vector, ..BLOCK });
    }
}

#[test]
fn neighbours_across_lanes_stretches_and_warps() {
    let text = "program neighbours { axes B, L; param x: f32[B, L]; param z: f32[B, L]; param f: f32[B];
        operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1;
            combine (%2); }
        %0: f32[B, L] = param x; %1: f32[B, L] = param z; %2: f32[B] = param f;
        %3: f32[B, L] = shift(L, 1, %0, %2); %4: f32[B, L] = shift(L, -1, %0, %2); %5: f32[B, L] = shift(L, -3, %1, %2);
        %6: f32[B, L] = shift(L, 2, %1, %2); %7: f32[B, L] = shift(L, 9, %1, %2); %8: f32[B, L] = %3 - %4;
        %9: f32[B, L] = %5 * %6; %10: f32[B, L] = %8 + %9; %11: tuple[B, L] = scan(L, Sum, (%10));
        %12: f32[B, L] = %11.s; %13: f32[B, L] = %12 - %7; %14: f32[B] = first(L, %1, %2); %15: f32[B, L] = %13 * %14;
        output y: f32[B, L] = %15; }";
    for text in [text.to_owned(), text.replace("(%10))", "(%10), reverse)")] {
        let program = program(&text);
        for len in [1, 2, 5, 256, 300, 600] {
            check(&program, &[2, len], Placement::Padded, Rows { vectors: 2, ..BLOCK });
            check(&program, &[2, len], Placement::Padded, Rows { warps: 1, row_warps: 1, lanes: 4, ..BLOCK });
        }
    }
}

#[test]
fn reductions_store_nothing_but_their_results() {
    let text = "program total { axes B, L; param x: bf16[B, L];
        operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1;
            combine (%2); }
        %0: f32[B, L] = param x; %1: f32[B, L] = %0 * %0; %2: tuple[B] = reduce(L, Sum, (%1)); %3: f32[B] = %2.s;
        %4: f32[B] = sqrt(%3); output norm: f32[B] = %4; }";
    for len in [0, 1, 7, 512, 1000] {
        check(&program(text), &[5, len], Placement::Padded, Rows { vector: 8, ..BLOCK });
    }
}
