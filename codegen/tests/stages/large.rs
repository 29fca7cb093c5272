//! Programs whose intermediate values are far larger than what they read and write: what plans of them store.

use oplus_codegen::plan::Planner;
use oplus_codegen::stage::{CutKind, cut, cut_arranged};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};

use super::plan::call;
use super::run::{check_at, check_within};

/// The kernels of `large.scan`, as they are written.
fn programs() -> Vec<Program> {
    let items = oplus_front::compile(include_str!("large.scan")).unwrap_or_else(|e| panic!("{e}"));
    items.iter().filter_map(|item| item.kernel()).map(|kernel| kernel.program.clone()).collect()
}

/// Sizes as models have them.
fn size(axis: &str) -> i64 {
    match axis {
        "B" => 8,
        "H" => 16,
        "M" | "N" | "T" => 2048,
        "C" => 512,
        "R" => 128,
        "S" => 16,
        "S.ends" => 17,
        _ => 64,
    }
}

/// How many times as much memory a plan takes for what it stores in between as for what it reads and writes.
fn share_stored(program: &Program, own: &[(&str, i64)]) -> f64 {
    let own = |axis: &str| own.iter().find(|(name, _)| *name == axis).map(|(_, size)| *size);
    let sizes: Vec<i64> = program.axes.iter().map(|axis| own(axis).unwrap_or_else(|| size(axis))).collect();
    let len = |axes: &[Axis]| axes.iter().map(|axis| sizes[axis.0 as usize]).product::<i64>();
    let of = |axes: &[Axis], elem: Elem| len(axes) * elem.bytes().unwrap_or(8) as i64;
    let params = program.params.iter().map(|p| of(&p.axes, p.elem));
    let tensors: i64 = params.chain(program.outputs.iter().map(|o| of(&o.axes, o.elem))).sum();
    let plan = Planner::new(program, &Target::H200).expect("cuts").plan(&call(program, &sizes)).expect("plans");
    plan.bytes() as f64 / tensors as f64
}

/// A program, sizes of its axes in place of those of [`size`], and the most that its plan and that of its gradient store.
type Most<'a> = (&'a str, &'a [(&'a str, i64)], f64, f64);

#[test]
fn plans_store_no_more_than_is_said() {
    // The book has this table, in `memory.md`.
    let most: [Most; 28] = [
        ("alibi", &[], 0.0, 0.1),
        ("dropout", &[], 0.0, 0.1),
        ("linear_attention", &[("V", 65)], 0.0, 0.6),
        ("linear_attention", &[("V", 80)], 0.0, 0.6),
        ("monoid_attention_packed_states", &[], 0.0, 0.4),
        ("ssd_packed_states", &[("G", 1), ("N", 64)], 0.0, 0.6),
        ("gated_delta_rule", &[], 0.0, 0.6),
        ("delta_rule_packed_states", &[], 0.0, 0.7),
        ("rotary", &[], 0.7, 1.1),
        ("gated_linear_attention", &[], 0.5, 1.2),
        ("rwkv7", &[], 0.0, 1.3),
        ("gated_linear_attention_packed_states", &[], 0.0, 1.4),
        ("kda", &[], 0.0, 1.6),
        ("ssd", &[("N", 128), ("P", 136)], 0.0, 1.6),
        ("ssd", &[("N", 128), ("P", 80)], 0.0, 1.8),
        ("rotary_relative", &[], 0.7, 1.1),
        ("affine_packed_states", &[], 1.6, 1.8),
        ("retention", &[("H", 4), ("K", 256), ("V", 512)], 1.2, 2.1),
        ("stick_breaking", &[], 4.0, 2.31),
        ("mamba_packed_states", &[("G", 1), ("D", 512), ("N", 16)], 3.6, 2.6),
        ("mla", &[], 2.9, 2.7),
        ("mla_absorbed", &[], 3.7, 2.8),
        ("ssd", &[("N", 256), ("G", 1), ("H", 80)], 1.6, 3.1),
        ("t5", &[], 2.1, 3.3),
        ("trapezoid", &[], 4.0, 3.5),
        ("rwkv6", &[], 0.0, 3.6),
        ("gated_linear_attention", &[("H", 4), ("K", 256), ("V", 512)], 1.3, 5.6),
        ("s4d", &[("D", 512), ("N", 32)], 0.0, 3.8),
    ];
    let known: Vec<Program> = programs().into_iter().chain(oplus_front::model_programs()).collect();
    for (name, own, forward, gradient) in most {
        let program = known.iter().find(|program| program.name == name).expect("a program").instantiate(Elem::Bf16);
        for (program, most) in [(adjoint(&program).expect("a gradient"), gradient), (program, forward)] {
            let found = share_stored(&program, own);
            assert!(found <= most, "{} {own:?}: {found:.5}", program.name);
        }
    }
}

#[test]
fn other_forms_give_what_the_program_gives() {
    let mut arranged = vec![];
    for program in programs() {
        let program = program.instantiate(Elem::F32);
        for program in [adjoint(&program).expect("a gradient"), program] {
            let sizes = |m: usize, n: usize| -> Vec<usize> {
                let size = |axis: &String| match axis.as_str() {
                    "M" => m,
                    "N" | "T" => n,
                    "E" | "P" | "R" => 3,
                    _ => 2,
                };
                program.axes.iter().map(size).collect()
            };
            let plain = cut(&program).expect("cuts");
            let other = cut_arranged(&program).expect("cuts");
            for (m, n) in [(3, 5), (5, 3), (1, 1), (2, 0), (0, 2)] {
                check_at(&program, &plain, &sizes(m, n));
                // Rows and columns that are stored are rounded to f32.
                other.iter().for_each(|cut| check_within(&program, cut, &sizes(m, n), 1e-5));
            }
            if other.is_some() {
                arranged.push(program.name.clone());
            }
        }
    }
    let names = [
        "alibi.bar",
        "rotary",
        "rotary.bar",
        "rotary_relative",
        "rotary_relative.bar",
        "mla",
        "mla.bar",
        "dropout",
        "dropout.bar",
        "t5.bar",
    ];
    for name in names {
        assert!(arranged.iter().any(|found| found == name), "{name} is not among {arranged:?}");
    }
}

#[test]
fn models_that_need_no_other_form_have_none() {
    for name in ["attention", "attention_causal", "attention_softcap", "ssd", "mamba"] {
        let models = oplus_front::model_programs();
        let model = models.into_iter().find(|program| program.name == name).expect("a model").instantiate(Elem::Bf16);
        for program in [adjoint(&model).expect("a gradient"), model] {
            assert_eq!(cut_arranged(&program), Ok(None), "{}", program.name);
            let planner = Planner::new(&program, &Target::H200).expect("cuts");
            assert!(planner.cut(CutKind::PairwiseArranged).is_none(), "{}", program.name);
        }
    }
}
