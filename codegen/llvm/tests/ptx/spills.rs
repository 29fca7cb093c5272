//! Kernels that take most registers do not spill: of each class of programs one form, under the schedules that take most.

use crate::check::{assembled_from, ptx};
use oplus_codegen::key::Key;
use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::lower;
use oplus_codegen::schedules::{DeltaSweep, Schedule, Sweep, Unit};
use oplus_codegen::target::Isa;
use oplus_codegen::tile::Kernel;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use std::collections::BTreeSet;

/// A standard model in `bf16`.
fn model(name: &str) -> Program {
    model_of(name, Elem::Bf16)
}

fn model_of(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem)
}

/// Assembles the kernels of a program under some schedules for an instruction set, each once, and says how many there are.
pub(crate) fn assemble(program: &Program, isa: Isa, is_meant: impl Fn(&Schedule) -> bool) -> usize {
    assemble_each(program, isa, is_meant, |kernel, own| drop(ptx(kernel, own)))
}

/// Assembles the kernels of a program under some schedules for Hopper, also those that all devices run, each once, and says how many
/// there are.
fn assemble_for_hopper(program: &Program, is_meant: impl Fn(&Schedule) -> bool) -> usize {
    assemble_each(program, Isa::Sm90a, is_meant, |kernel, own| {
        let text = oplus_llvm::compile(kernel, own).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        assembled_from(&text, &kernel.name, Isa::Sm90a);
    })
}

/// Calls a function for the kernels of a program under some schedules and their instruction sets, each once, and says how many there are.
fn assemble_each(
    program: &Program,
    isa: Isa,
    is_meant: impl Fn(&Schedule) -> bool,
    assemble: impl Fn(&Kernel, Isa),
) -> usize {
    let stages: Vec<_> = cuts(program).expect("cuts").all().flat_map(|cut| cut.stages).collect();
    let all = stages.iter().flat_map(|stage| variants(stage, isa));
    let mut seen = BTreeSet::new();
    for (stage, schedule) in all.filter(|(_, schedule)| is_meant(schedule)) {
        let own = schedule.isa(isa);
        if seen.insert(Key::of(&stage, &*schedule, own).to_string()) {
            assemble(&lower(&stage, &schedule, own).expect("lowers"), own);
        }
    }
    seen.len()
}

/// Warps have the state of the most depth in registers.
#[test]
fn chunks_by_warps_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.depth == 128);
    for name in ["mamba2", "ssd_packed", "retention"] {
        assert!(assemble(&model(name), Isa::Sm80, is_meant) >= 4, "{name}");
    }
}

/// The sums of 256 places take half of the registers.
#[test]
fn attention_of_256_places_does_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Flash(s) if s.depth == 256);
    let gradient = adjoint(&model("attention")).expect("differentiable");
    for isa in Isa::ALL {
        assert!(assemble(&model("attention"), isa, is_meant) >= 4);
        assert!(assemble(&gradient, isa, is_meant) >= 4);
    }
}

/// Sums, the weights of two tiles and the rows' ranges; nor are products serialised for want of registers.
#[test]
fn overlapped_attention_does_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Flash(s) if s.copiers > 0);
    for name in ["attention", "attention_causal", "attention_window"] {
        let found = [Elem::Bf16, Elem::F16].map(|elem| assemble(&model_of(name, elem), Isa::Sm90a, is_meant));
        assert!(found.iter().all(|n| *n >= 2), "{name}: {found:?}");
    }
    assert_eq!(assemble(&model("attention_packed_causal"), Isa::Sm90a, is_meant), 0);
    assert_eq!(assemble(&model_of("attention", Elem::F32), Isa::Sm90a, is_meant), 0);
}

/// Three warpgroups with sums over heads, and one that copies, share the registers; nor are their products serialised for want of them.
#[test]
fn gradients_by_warpgroups_do_not_spill() {
    let is_meant = |s: &Schedule| match s {
        Schedule::ChunkwiseBackward(s) => s.warpgroups && s.sweep == Sweep::Gradients && s.depth >= 64,
        _ => false,
    };
    // Deepest slices of f32 spill up to 24 bytes: constants of the launch.
    let is_kept = |s: &Schedule| !matches!(s, Schedule::ChunkwiseBackward(s) if s.wide && s.depth == 128);
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        let is_meant = |s: &Schedule| is_meant(s) && (elem != Elem::F32 || is_kept(s));
        for name in ["ssd_softplus", "ssd_packed", "retention", "linear_attention"] {
            let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
            assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 2, "{name} {elem}");
        }
    }
}

#[test]
fn gates_of_warpgroups_do_not_spill() {
    let is_meant =
        |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.unit == Unit::Warpgroup && s.depth == 128 && !s.ends);
    assert!(assemble(&model("mamba2"), Isa::Sm90a, is_meant) >= 3);
}

/// Of the greatest depth, by whole accesses, for any parts of the width; and of packed sequences, whose resets take registers, at half of it.
#[test]
fn products_in_tf32_of_whole_accesses_do_not_spill() {
    for (name, elem, depth, least) in [
        ("ssd", Elem::F16, 128, 8),
        ("ssd_packed", Elem::F16, 64, 4),
        ("ssd_packed", Elem::F16, 128, 4),
        ("ssd", Elem::F32, 128, 12),
        ("ssd_packed", Elem::F32, 128, 4),
        ("linear_attention", Elem::F32, 128, 12),
    ] {
        let is_meant = |s: &Schedule| match s {
            Schedule::Chunkwise(s) => s.unit == Unit::Warp && s.depth == depth && s.vector > 1,
            _ => false,
        };
        assert!(assemble_for_hopper(&model_of(name, elem), is_meant) >= least, "{name} {elem} {depth}");
    }
}

#[test]
fn products_in_tf32_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        let is_meant = |s: &Schedule| match s {
            Schedule::Chunkwise(s) => s.unit == Unit::Warp && !s.wide && (!s.padded || s.vector == 1),
            _ => false,
        };
        assert!(assemble(&model_of("mamba2", elem), Isa::Sm90a, is_meant) >= 16, "{elem}");
    }
}

/// Warps that round `f16` or divide `f32` and those that multiply share the registers; beside a gate the greatest depth spills.
#[test]
fn chunks_of_f16_and_f32_by_warpgroups_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        for (name, depths) in [("ssd", 64..=128), ("ssd_packed", 128..=128), ("mamba2", 64..=64)] {
            let is_meant = |s: &Schedule| match s {
                Schedule::Chunkwise(s) => s.unit == Unit::Warpgroup && depths.contains(&s.depth) && !s.padded,
                _ => false,
            };
            assert!(assemble(&model_of(name, elem), Isa::Sm90a, is_meant) >= 2, "{name} {elem}");
        }
    }
}

#[test]
fn decays_of_channels_in_tf32_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.depth >= 64);
        assert!(assemble_for_hopper(&model_of("gated_linear_attention", elem), is_meant) >= 16, "{elem}");
    }
}

/// Third sweeps for any parts of the width, by whole accesses and by single elements, and walks. At the greatest depth sums over slices stay in
/// registers, as tiles lie over one another.
#[test]
fn gradients_of_decays_of_channels_in_tf32_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        let gradient = adjoint(&model_of("gated_linear_attention", elem)).expect("differentiable");
        let is_meant = |s: &Schedule| match s {
            Schedule::ChunkwiseBackward(s) if s.depth >= 64 => s.sweep == Sweep::Gradients || !s.padded && !s.wide,
            _ => false,
        };
        assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 20, "{elem}");
    }
}

/// By single elements, which unaligned tensors and odd widths take, for any parts of the width.
#[test]
fn chunks_of_single_elements_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.vector == 1 && s.depth >= 64);
    for (name, elem) in [
        ("ssd_packed", Elem::Bf16),
        ("ssd_packed", Elem::F16),
        ("ssd_packed", Elem::F32),
        ("ssd", Elem::F32),
        ("mamba2", Elem::F16),
        ("linear_attention", Elem::F32),
        ("gated_linear_attention", Elem::F32),
    ] {
        assert!(assemble_for_hopper(&model_of(name, elem), is_meant) >= 6, "{name} {elem}");
    }
}

/// The cotangent of a gate reads single elements of two tensors beside the values.
#[test]
fn cotangents_of_gates_of_single_elements_do_not_spill() {
    let gradient = adjoint(&model("mamba2")).expect("differentiable");
    let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.vector == 1 && s.depth >= 64);
    assert!(assemble_for_hopper(&gradient, is_meant) >= 4);
    assert!(assemble(&gradient, Isa::Sm80, is_meant) >= 4);
}

/// Packed sequences in `bf16`, also where a width ends inside of a part.
#[test]
fn packed_sequences_by_warps_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.depth == 64 && s.vector > 1);
    assert!(assemble(&model("ssd_packed"), Isa::Sm80, is_meant) >= 4);
}

/// Slices of the greatest depth, without decays and beside the resets of packed sequences, in the third sweep by warps.
#[test]
fn gradients_of_deep_slices_by_warps_do_not_spill() {
    let is_meant = |s: &Schedule| match s {
        Schedule::ChunkwiseBackward(s) => !s.warpgroups && s.sweep == Sweep::Gradients && s.depth == 128 && s.wide,
        _ => false,
    };
    for name in ["linear_attention", "ssd_packed"] {
        let gradient = adjoint(&model(name)).expect("differentiable");
        for isa in Isa::ALL {
            assert!(assemble(&gradient, isa, is_meant) >= 3, "{name}");
        }
    }
}

/// The third sweep of heads that share keys takes most registers.
#[test]
fn gradients_in_tf32_do_not_spill() {
    for (elem, depth, least) in [(Elem::F16, 64, 2), (Elem::F16, 128, 1), (Elem::F32, 64, 2), (Elem::F32, 128, 1)] {
        let program = adjoint(&model_of("mamba2", elem)).expect("differentiable");
        let is_meant = |s: &Schedule| match s {
            Schedule::ChunkwiseBackward(s) if s.sweep == Sweep::Gradients => !s.wide && !s.padded && s.depth == depth,
            Schedule::ChunkwiseBackward(s) => !s.wide && !s.padded && s.depth == depth && depth == 64,
            _ => false,
        };
        assert!(assemble(&program, Isa::Sm90a, is_meant) >= least, "{elem} {depth}");
    }
}

#[test]
fn gradients_of_single_elements_do_not_spill() {
    for name in ["mamba2", "retention"] {
        let program = adjoint(&model(name)).expect("differentiable");
        let is_meant =
            |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.vector == 1 && s.sweep == Sweep::Gradients);
        assert!(assemble(&program, Isa::Sm90a, is_meant) >= 3, "{name}");
    }
}

/// Parts of the width of which the last one is shorter, by whole accesses, in the third sweep but for the most depth.
#[test]
fn widths_that_end_inside_of_a_part_do_not_spill() {
    let forward =
        |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.padded && s.wide && s.vector > 1 && s.depth >= 64);
    let back = |s: &Schedule| match s {
        Schedule::Chunkwise(s) => s.padded && s.wide && s.vector > 1 && s.depth == 128,
        Schedule::ChunkwiseBackward(s) => s.padded && s.wide && s.vector > 1 && s.depth == 64,
        _ => false,
    };
    for name in ["mamba2", "linear_attention"] {
        assert!(assemble(&model(name), Isa::Sm90a, forward) >= 2, "{name}");
        let gradient = adjoint(&model(name)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm90a, back) >= 2, "{name}");
    }
    assert!(assemble(&model("linear_attention"), Isa::Sm80, forward) >= 2);
}

#[test]
fn gradients_of_linear_attention_of_single_elements_do_not_spill() {
    let program = adjoint(&model("linear_attention")).expect("differentiable");
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.vector == 1 && s.depth == 128);
    for isa in [Isa::Sm80, Isa::Sm90a] {
        assert!(assemble(&program, isa, is_meant) >= 1);
    }
}

#[test]
fn gradients_without_warpgroups_do_not_spill() {
    for (name, least) in [("mamba2", 18), ("retention", 14)] {
        let program = adjoint(&model(name)).expect("differentiable");
        let is_meant =
            |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.vector > 1 && !s.padded && s.depth > 32);
        assert!(assemble(&program, Isa::Sm80, is_meant) >= least, "{name}");
    }
}

#[test]
fn gradients_of_single_elements_without_warpgroups_do_not_spill() {
    let program = adjoint(&model("ssd")).expect("differentiable");
    let is_meant =
        |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.vector == 1 && s.sweep == Sweep::Gradients);
    assert!(assemble(&program, Isa::Sm80, is_meant) >= 5);
}

/// By single elements, which unaligned tensors and odd widths take, of the greatest depth, on older devices, too.
#[test]
fn delta_rules_of_single_elements_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDelta(s) if s.vector == 1 && s.depth == 128);
    for (name, elem) in [
        ("gated_delta_rule", Elem::Bf16),
        ("gated_delta_rule", Elem::F32),
        ("delta_rule_packed_states", Elem::Bf16),
        ("kda", Elem::F32),
    ] {
        let program = model_of(name, elem);
        assert!(assemble(&program, Isa::Sm80, is_meant) >= 3, "{name} {elem}");
        assert!(assemble_for_hopper(&program, is_meant) >= 3, "{name} {elem}");
    }
}

/// By single elements, which unaligned tensors and odd widths take.
#[test]
fn gradients_of_delta_rules_of_single_elements_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDeltaBackward(s) if s.vector == 1 && s.depth >= 64);
    for name in ["delta_rule", "gated_delta_rule"] {
        for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
            let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
            assert!(assemble_for_hopper(&gradient, is_meant) >= 6, "{name} {elem}");
        }
    }
}

/// On older devices, too, with the greatest depth.
#[test]
fn gradients_of_delta_rules_of_single_elements_on_older_devices_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDeltaBackward(s) if s.vector == 1 && s.depth == 128);
    let gradient = adjoint(&model_of("gated_delta_rule", Elem::F32)).expect("differentiable");
    assert!(assemble(&gradient, Isa::Sm80, is_meant) >= 3);
}

/// Walks with two keys, and with tiles of `f32` that differ from the factors made of them.
#[test]
fn walks_of_decays_of_channels_of_single_elements_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::ChunkDeltaBackward(s)
            if s.vector == 1 && s.depth == 128 && s.sweep == DeltaSweep::Cotangents)
    };
    for (name, elem) in [("kda", Elem::F32), ("rwkv7", Elem::F16)] {
        let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
        assert!(assemble_for_hopper(&gradient, is_meant) >= 1, "{name}");
    }
}

/// Of the greatest depth, where a warp has half of its registers for the state, by warps.
#[test]
fn walks_of_gradients_in_f32_do_not_spill() {
    let is_meant =
        |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.depth == 128 && s.sweep != Sweep::Gradients);
    for name in ["linear_attention", "ssd_softplus"] {
        let gradient = adjoint(&model_of(name, Elem::F32)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 8, "{name}");
    }
}

/// Gradients of selective scans that copy saved states to shared memory.
#[test]
fn gradients_that_copy_saved_states_ahead_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpaceBackward(s) if s.saved_ahead);
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        let gradient = adjoint(&model_of("selective_scan", elem)).expect("differentiable");
        assert!(assemble_for_hopper(&gradient, is_meant) >= 4, "{elem}");
    }
}

/// Selective scans of narrow elements that unpack four chunks in an iteration.
#[test]
fn scans_that_unpack_many_chunks_do_not_spill() {
    let is_meant =
        |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.vector == 8 && s.unroll == 4 && s.blocks == 2);
    for elem in [Elem::Bf16, Elem::F16] {
        assert!(assemble_for_hopper(&model_of("selective_scan", elem), is_meant) >= 2, "{elem}");
    }
}

/// With sums of pairs that pass over blocks of times, by single elements.
#[test]
fn sums_over_time_of_cotangents_of_channels_do_not_spill() {
    let text = "fn f(q: [H, T, K], k: [H, T, K], v: [H, T, V], a: [H, K]) -> (o: [H, T, V]) {
        o = sum(K, q * scan(T, LogDecay(a, k * v)).x);
    }";
    let programs = oplus_front::programs(text.parse().expect("tokens")).expect("a program");
    let gradient = adjoint(&programs[0].instantiate(Elem::Bf16)).expect("differentiable");
    let is_meant = |s: &Schedule| match s {
        Schedule::ChunkwiseBackward(s) => s.depth == 128 && s.vector == 1 && s.sweep == Sweep::Gradients,
        _ => false,
    };
    assert!(assemble_for_hopper(&gradient, is_meant) >= 2);
}

/// Several sums over the width as well, in `f32`, of whole accesses and of single elements, for any parts of the width.
#[test]
fn sums_over_time_beside_several_sums_over_the_width_do_not_spill() {
    let text = "fn f(q: [H, T, K], k: [H, T, K], v: [H, T, V], u: [H, T, V], a: [H, K], beta: [H, T], gamma: [H, T]) -> (o: [H, T, V]) {
        o = sum(K, q * scan(T, LogDecay(a, k * (beta * v + gamma * u))).x);
    }";
    let programs = oplus_front::programs(text.parse().expect("tokens")).expect("a program");
    let gradient = adjoint(&programs[0].instantiate(Elem::F32)).expect("differentiable");
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.overlaid);
    assert!(assemble_for_hopper(&gradient, is_meant) >= 6);
}
