//! Groups against the steps of one node after the other, to the bit.

use oplus_dsl::parse::parse;

use super::*;
use crate::cpu::kernel::Ahead;
use crate::cpu::lanes::FirstElement;
use crate::cpu::sweep::{Stepper, Strides};

/// The kernel of an operator on `u` and `v` of a type, whose body has the fields of both operands in front.
fn kernel(elem: &str, body: &[&str], combine: &str) -> Kernel {
    let inputs = ["input l.u", "input l.v", "input r.u", "input r.v"].map(|input| format!("{elem} = {input}"));
    let lines = inputs.iter().cloned().chain(body.iter().map(|line| line.replace("real", elem)));
    let lines: Vec<String> = lines.enumerate().map(|(i, line)| format!("%{i}: {line};")).collect();
    let text = format!(
        "program p {{ axes L; param x: {elem}[L];
         operator Op(u: {elem}, v: {elem}) {{ identity (1.0, 0.0); {} combine ({combine}); }}
         %0: {elem}[L] = param x; output y: {elem}[L] = %0; }}",
        lines.join(" ")
    );
    let program = parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?} in {text}"));
    Kernel::new(&program.operators[0], 0b11, Ahead::Nothing)
}

/// Operators whose next values are results, other results, states, elements and constants.
fn kernels(elem: &str) -> Vec<Kernel> {
    vec![
        kernel(elem, &[], "%1, %0"),
        kernel(elem, &["real = const 0.5", "real = %0 * %3"], "%4, %5"),
        kernel(elem, &["real = %0 * %3", "real = max(%4, %1)"], "%4, %5"),
        kernel(elem, &["real = %0 * %2", "real = %4 - %1"], "%5, %5"),
        kernel(
            elem,
            &["real = %0 * %2", "real = %1 * %3", "real = %4 - %5", "real = %0 * %3", "real = %7 + %2"],
            "%6, %8",
        ),
        kernel(elem, &["bool = %0 < %3", "bool = not(%4)", "real = select(%5, %1, %2)", "real = neg(%6)"], "%3, %7"),
    ]
}

fn numbers(ty: Ty, n: usize, seed: usize) -> Values {
    let of = |k: usize| ((k * 37 + seed * 11) % 101) as f64 / 51.0 - 1.0;
    match ty {
        Ty::F32 => Values::F32((0..n).map(|k| of(k) as f32).collect()),
        _ => Values::F64((0..n).map(of).collect()),
    }
}

/// Elements, states and results of some lanes, which lie next to one another or far apart, and elements that lanes or steps share; all of
/// it also against the order of memory.
fn geometries(steps: usize) -> Vec<Geometry> {
    let strides = |step: usize, lanes: &[usize]| Strides {
        start: 0,
        step: step as isize,
        lanes: lanes.iter().map(|stride| *stride as isize).collect(),
    };
    let mut all = vec![];
    for sizes in [vec![], vec![1], vec![7], vec![64], vec![2, 67], vec![5, 3]] {
        let lanes: usize = sizes.iter().product();
        let inside: Vec<usize> = (0..sizes.len()).map(|k| sizes[k + 1..].iter().product()).collect();
        let rows: Vec<usize> = inside.iter().map(|stride| stride * steps).collect();
        let outer: Vec<usize> =
            inside.iter().enumerate().map(|(k, stride)| if k == 0 { stride * steps } else { 0 }).collect();
        let by_step = strides(lanes, &inside);
        for first in [FirstElement::Combined, FirstElement::Skipped] {
            for (u, v) in [
                (by_step.clone(), by_step.clone()),
                (strides(1, &rows), strides(1, &rows)),
                (strides(1, &outer), strides(0, &inside)),
            ] {
                let out = if u == by_step { by_step.clone() } else { strides(1, &rows) };
                let geometry = Geometry {
                    steps,
                    lanes: sizes.clone().into(),
                    elements: vec![u, v],
                    states: vec![by_step.lanes.clone(); 2],
                    outputs: vec![out; 2],
                    in_blocks: false,
                    first,
                    exclusive: false,
                };
                all.extend([backwards(&geometry), geometry]);
            }
        }
    }
    all
}

/// The steps of a geometry in the other order of memory.
fn backwards(geometry: &Geometry) -> Geometry {
    let turn = |strides: &Strides| Strides {
        start: geometry.steps.saturating_sub(1) * strides.step as usize,
        step: -strides.step,
        lanes: strides.lanes.clone(),
    };
    let [elements, outputs] = [&geometry.elements, &geometry.outputs].map(|all| all.iter().map(turn).collect());
    Geometry { elements, outputs, ..geometry.clone() }
}

#[test]
fn groups_take_the_steps_that_single_nodes_take() {
    for (elem, ty) in [("f32", Ty::F32), ("f64", Ty::F64)] {
        for (number, kernel) in kernels(elem).iter().enumerate() {
            for geometry in [0, 1, 2, 7, 8, 15, 16, 17, 40].into_iter().flat_map(geometries) {
                for exclusive in [false, true] {
                    assert_same(kernel, &Geometry { exclusive, ..geometry.clone() }, ty, number);
                }
            }
        }
    }
}

fn assert_same(kernel: &Kernel, geometry: &Geometry, ty: Ty, number: usize) {
    let lanes: usize = geometry.lanes.iter().product();
    let n = (lanes * geometry.steps).max(lanes);
    let all = [numbers(ty, n, 1), numbers(ty, n, 2)];
    let elements: Vec<Slice<'_>> = all.iter().map(|values| values.from(0)).collect();
    let run = |in_groups: bool| {
        let mut states = vec![numbers(ty, lanes, 3), numbers(ty, lanes, 4)];
        let mut outputs = [numbers(ty, n, 5), numbers(ty, n, 6)];
        let mut targets: Vec<Option<&mut Values>> = outputs.iter_mut().map(Some).collect();
        let mut workspace = Workspace::default();
        if in_groups {
            let groups = Groups::new(kernel, geometry).expect("the kernel is for groups");
            groups.run(&elements, &mut states, &mut targets, &mut workspace).unwrap();
        } else {
            let stepper = Stepper::new(kernel, geometry);
            stepper.run(&elements, &mut states, &mut targets, &mut workspace).unwrap();
        }
        (states, outputs)
    };
    assert!(kernel.program.is_some(), "operator {number} has no program");
    // Other processors have no vectors, and no groups.
    if takes(kernel) {
        assert_eq!(run(true), run(false), "operator {number} by {geometry:?}");
    }
}
