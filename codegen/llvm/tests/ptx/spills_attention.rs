//! Attention does not spill where registers are scarcest: with heads of 256, whose sums take half of a thread's registers. Here
//! are the forms that add something to scores, compare, or bend them; those of all pairs are in [`crate::spills`].

use crate::clean::assemble_once;
use oplus_codegen::key::Key;
use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::flash::SumsOver;
use oplus_codegen::schedules::lower;
use oplus_codegen::schedules::{Flash, Schedule, Unit};
use oplus_codegen::stage::Stage;
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A kernel: its key, its stage and schedule, and the instruction set that it is made for.
type Variant = (Key, Stage, Schedule, Isa);

/// Some standard models.
fn models(names: &[&str], elem: Elem) -> Vec<Program> {
    let all = oplus_front::model_programs().into_iter();
    let own = all.filter(|program| names.contains(&program.name.as_str()));
    let own: Vec<Program> = own.map(|program| program.instantiate(elem)).collect();
    assert_eq!(own.len(), names.len());
    own
}

/// The kernels of pairs of some programs on both instruction sets, each once.
fn kernels(programs: &[Program], is_meant: impl Fn(&Flash) -> bool) -> Vec<Variant> {
    let mut found = BTreeMap::new();
    let cut = |program: &Program| cuts(program).expect("cuts").all().flat_map(|cut| cut.stages).collect::<Vec<_>>();
    for (stage, isa) in programs.iter().flat_map(cut).flat_map(|stage| Isa::ALL.map(|isa| (stage.clone(), isa))) {
        for (stage, schedule) in variants(&stage, isa) {
            if matches!(&schedule, Schedule::Flash(pairs) if is_meant(pairs)) {
                let own = schedule.isa(isa);
                let key = Key::of(&stage, &*schedule, own);
                found.insert(key, (key, stage, schedule, own));
            }
        }
    }
    found.into_values().collect()
}

/// Assembles kernels, of which there are at least so many.
fn assemble(kernels: &[Variant], least: usize) {
    assert!(kernels.len() >= least, "{} kernels", kernels.len());
    kernels.par_iter().for_each(|(key, stage, schedule, isa)| {
        assemble_once(*key, *isa, *isa, || lower(stage, schedule, *isa).expect("lowers"));
    });
}

/// With a bias, causal, in a window, with a cap, of packed sequences.
const FORMS: [&str; 5] =
    ["attention_bias", "attention_causal", "attention_window", "attention_softcap", "attention_packed_causal"];

/// Single elements, which unaligned tensors and odd widths take: with their loads there are the fewest registers.
#[test]
fn attention_of_single_elements_with_heads_of_256_does_not_spill() {
    assemble(&kernels(&models(&FORMS, Elem::Bf16), |s| s.depth == 256 && s.vector == 1), 10);
}

/// By warps: warpgroups need no addresses for what they multiply.
#[test]
fn gradients_with_heads_of_256_do_not_spill() {
    let is_meant = |s: &Flash| s.unit == Unit::Warp && s.depth == 256 && (!s.padded || s.vector == 1);
    for elem in [Elem::Bf16, Elem::F16] {
        assemble(&kernels(&gradients(elem), is_meant), 60);
    }
}

/// With one contraction they have as many columns as without a mask.
#[test]
fn gradients_with_heads_of_256_by_warpgroups_do_not_spill() {
    let is_meant = |s: &Flash| s.unit == Unit::Warpgroup && s.depth == 256 && !s.padded;
    for elem in [Elem::Bf16, Elem::F16] {
        assemble(&kernels(&gradients(elem), is_meant), 15);
    }
}

/// The gradients of all forms.
fn gradients(elem: Elem) -> Vec<Program> {
    models(&FORMS, elem).iter().map(|program| adjoint(program).expect("differentiable")).collect()
}

/// With sums over keys and over queries in one kernel, walking threads have 232 registers and copying ones 40.
#[test]
fn gradients_with_both_sums_do_not_spill() {
    let names = ["attention", "attention_causal", "attention_window"];
    let gradient = |program: &Program, elem| {
        let bar = adjoint(program).expect("differentiable");
        let wanted: Vec<&str> = bar.outputs.iter().map(|output| output.name.as_str()).collect();
        for_call(&bar, elem, &wanted, &["lse.bar"])
    };
    let programs: Vec<Program> = oplus_front::model_programs()
        .iter()
        .filter(|program| names.contains(&program.name.as_str()))
        .flat_map(|program| [Elem::Bf16, Elem::F16].map(|elem| gradient(program, elem)))
        .collect();
    assert_eq!(programs.len(), 6);
    let kernels = kernels(&programs, |s| s.sums != SumsOver::Columns);
    assemble(&kernels, 24);
}
