//! Tests of the reads of a stage along its axis.

use crate::block::reads::{Offsets, constant_along, displacements, near};
use crate::stage::{Stage, cut};
use oplus_dsl::ir::{Axis, Value};
use oplus_dsl::parse::parse;

/// y[t] = x[t − 2] · x[t] + (x[t + 3] · w[t + 1])[t − 1]·c, of one stage; %7 is what follows from c and the constant alone.
fn stage() -> Stage {
    let text = "program p { axes B, L; param x: f32[B, L]; param w: f32[B, L]; param c: f32[B];
        %0: f32[B, L] = param x; %1: f32[B, L] = param w; %2: f32[B] = param c; %3: f32 = const 0.0;
        operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); }
        %4: f32[B, L] = shift(L, 2, %0, %3); %5: f32[B, L] = %4 * %0;
        %6: f32[B, L] = shift(L, -3, %0, %3); %7: f32[B, L] = shift(L, -1, %1, %3); %8: f32[B, L] = %6 * %7;
        %9: f32[B, L] = shift(L, 1, %8, %3); %10: f32[B] = exp(%2); %11: f32[B, L] = %9 * %10;
        %12: f32[B, L] = %5 + %11; %13: tuple[B, L] = scan(L, Sum, (%12)); %14: f32[B, L] = %13.s;
        output y: f32[B, L] = %14; }";
    let program = parse(text).unwrap_or_else(|e| panic!("{e}"));
    let stages = cut(&program).expect("cuts").stages;
    assert_eq!(stages.len(), 1);
    stages.into_iter().next().expect("a stage")
}

/// The elements of the stage's scan.
fn roots(stage: &Stage) -> Vec<Value> {
    let scans = stage.program.nodes.iter().filter_map(|node| match &node.op {
        oplus_dsl::ir::Op::Scan { elements, .. } => Some(elements.clone()),
        _ => None,
    });
    scans.flatten().collect()
}

fn axis(stage: &Stage) -> Axis {
    stage.axis().expect("a scan axis")
}

/// The range of a parameter, by its name.
fn of(stage: &Stage, ranges: &std::collections::BTreeMap<u32, Offsets>, name: &str) -> Option<[i64; 2]> {
    stage.program.param(name).and_then(|param| ranges.get(&param)).map(|range| [range.least, range.greatest])
}

#[test]
fn displacements_add_up_along_shifts() {
    let stage = stage();
    let ranges = displacements(&stage, axis(&stage), roots(&stage).into_iter());
    // x is read at t − 2, t and t + 3 − 1, w at t + 1 − 1; c has not the axis.
    assert_eq!(of(&stage, &ranges, "x"), Some([-2, 2]));
    assert_eq!(of(&stage, &ranges, "w"), Some([0, 0]));
    assert_eq!(of(&stage, &ranges, "c"), None);
}

#[test]
fn what_is_far_is_not_near() {
    let stage = stage();
    let within = |reach| {
        let ranges = near(&stage, axis(&stage), roots(&stage).into_iter(), reach);
        ["x", "w"].map(|name| of(&stage, &ranges, name))
    };
    assert_eq!(within(2), [Some([-2, 2]), Some([0, 0])]);
    assert_eq!(within(1), [Some([0, 0]), Some([0, 0])]);
}

#[test]
fn values_without_the_axis_are_constant_along_it() {
    let stage = stage();
    let found = constant_along(&stage.program, axis(&stage), roots(&stage).into_iter());
    let texts: Vec<String> = found.iter().map(|v| stage.program.node(*v).op.name().to_owned()).collect();
    assert_eq!(texts, ["exp"]);
}
