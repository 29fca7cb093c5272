//! Kernels of gradients that take most registers do not spill: of each class of programs one form, under the schedules that take most.

use crate::spills::{assemble, assemble_for_hopper, model, model_of};
use oplus_codegen::schedules::{DeltaSweep, Pass, Schedule, Sweep};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;

/// Of a single head two blocks share a multiprocessor, and each has half of the registers.
#[test]
fn gradients_of_single_heads_do_not_spill() {
    let is_meant = |s: &Schedule| match s {
        Schedule::ChunkwiseBackward(s) => s.sweep == Sweep::Gradients && s.blocks == 2,
        _ => false,
    };
    for name in ["retention", "monoid_attention", "monoid_attention_packed_states"] {
        // Of f16 those of the least depth keep a multiprocessor to themselves.
        for (elem, least) in [(Elem::Bf16, 4), (Elem::F16, 2)] {
            let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
            assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= least, "{name} {elem}");
        }
    }
}

/// Three warpgroups with sums over heads, and one that copies, share the registers; nor are their products serialised for want of them.
#[test]
fn gradients_by_warpgroups_do_not_spill() {
    let is_meant = |s: &Schedule| match s {
        Schedule::ChunkwiseBackward(s) => s.warpgroups && s.sweep == Sweep::Gradients && s.depth >= 64,
        _ => false,
    };
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        for name in ["ssd_softplus", "ssd_packed", "retention", "linear_attention"] {
            let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
            assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 2, "{name} {elem}");
        }
    }
}

/// Third sweeps for any parts of the width, by whole accesses and by single elements, and walks. At the greatest depth sums over slices stay in
/// registers, as tiles lie over one another.
#[test]
fn gradients_of_decays_of_channels_in_tf32_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        let gradient = adjoint(&model_of("gated_linear_attention", elem)).expect("differentiable");
        let is_meant = |s: &Schedule| match s {
            // What walks copy ahead leaves the third sweep as it is.
            Schedule::ChunkwiseBackward(s) if s.depth >= 64 && s.sweep == Sweep::Gradients => s.walk_stages == 2,
            Schedule::ChunkwiseBackward(s) if s.depth >= 64 => !s.padded && !s.wide,
            _ => false,
        };
        assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 20, "{elem}");
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

/// On older devices, too, with the greatest depth, and where two blocks share a multiprocessor.
#[test]
fn gradients_of_delta_rules_of_single_elements_on_older_devices_do_not_spill() {
    for (elem, depth, least) in [(Elem::F32, 128, 3), (Elem::Bf16, 64, 4)] {
        let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDeltaBackward(s) if s.vector == 1 && s.depth == depth);
        let gradient = adjoint(&model_of("gated_delta_rule", elem)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm80, is_meant) >= least, "{elem}");
    }
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

/// Walks over prepared tiles, of which two blocks share a multiprocessor.
#[test]
fn walks_of_gradients_over_prepared_tiles_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::ChunkDeltaBackward(s)
            if s.prepared && s.depth == 64 && s.places == 64 && !s.padded && s.sweep == DeltaSweep::Cotangents)
    };
    for (name, elem) in [("kda", Elem::F16), ("rwkv7", Elem::Bf16)] {
        let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 1, "{name}");
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
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpaceBackward(s) if s.saved_ahead > 0);
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        let gradient = adjoint(&model_of("selective_scan", elem)).expect("differentiable");
        assert!(assemble_for_hopper(&gradient, is_meant) >= 4, "{elem}");
    }
}

/// Walks of selective scans with eight states of a lane, which are walked group by group, by whole accesses and by single elements.
#[test]
fn gradients_of_many_states_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::StateSpaceBackward(s)
            if s.states == 8 && s.pass == Pass::Walk)
    };
    for (name, elem) in [("selective_scan", Elem::Bf16), ("mamba", Elem::Bf16), ("mamba", Elem::F32)] {
        let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
        for isa in Isa::ALL {
            assert!(assemble(&gradient, isa, is_meant) >= 3, "{name} {elem}");
        }
    }
}

/// On older devices warps that walk cannot take over registers of warps that copy: four states of a lane are walked in groups as well.
#[test]
fn gradients_of_selective_scans_on_older_devices_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::StateSpaceBackward(s)
            if s.states == 4 && s.pass == Pass::Walk)
    };
    for (name, elem) in [("selective_scan", Elem::F32), ("mamba", Elem::Bf16)] {
        let gradient = adjoint(&model_of(name, elem)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm80, is_meant) >= 9, "{name} {elem}");
    }
}

/// Flags of first steps take registers. States are walked in groups that leave enough for them.
#[test]
fn gradients_of_selective_scans_of_packed_sequences_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::StateSpaceBackward(s)
            if s.states == 4 && s.pass == Pass::Walk)
    };
    for elem in [Elem::Bf16, Elem::F32] {
        let gradient = adjoint(&model_of("mamba_packed", elem)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 8, "{elem}");
    }
}

/// By single elements, where walking warps take the registers of those that copy.
#[test]
fn gradients_of_selective_scans_of_single_elements_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::StateSpaceBackward(s)
            if s.vector == 1 && s.states == 4 && s.pass == Pass::Walk)
    };
    for name in ["selective_scan", "mamba"] {
        let gradient = adjoint(&model_of(name, Elem::F32)).expect("differentiable");
        assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 2, "{name}");
    }
}

/// The passes before the walk, of which two blocks share a multiprocessor: carries of segments, and saved states.
#[test]
fn passes_before_walks_of_selective_scans_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::StateSpaceBackward(s)
            if s.lanes <= 16 && s.segmented && !matches!(s.pass, Pass::Walk | Pass::Sum))
    };
    for elem in [Elem::Bf16, Elem::F32] {
        let gradient = adjoint(&model_of("mamba", elem)).expect("differentiable");
        assert!(assemble_for_hopper(&gradient, is_meant) >= 9, "{elem}");
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

/// Where the block's sequence lies takes registers: by warps and by warpgroups, with sums over all of the depth.
#[test]
fn gradients_of_packed_sequences_with_states_do_not_spill() {
    let gradient = adjoint(&model("ssd_packed_states")).expect("differentiable");
    let is_meant =
        |s: &Schedule| matches!(s, Schedule::ChunkwiseBackward(s) if s.depth >= 64 && s.sweep == Sweep::Gradients);
    assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 12);
    let gradient = adjoint(&model_of("ssd_packed_states", Elem::F32)).expect("differentiable");
    let is_meant = |s: &Schedule| match s {
        Schedule::ChunkwiseBackward(s) => s.depth == 128 && s.sweep == Sweep::Gradients && s.warpgroups,
        _ => false,
    };
    assert!(assemble(&gradient, Isa::Sm90a, is_meant) >= 4);
}

/// Two blocks share a multiprocessor.
#[test]
fn walks_of_gradients_with_two_keys_do_not_spill() {
    let gradient = adjoint(&model("rwkv7")).expect("differentiable");
    for isa in Isa::ALL {
        let is_meant = |s: &Schedule| match s {
            Schedule::ChunkDeltaBackward(s) => {
                s.depth == 64 && s.vector > 1 && s.prepared && !s.padded && s.sweep != DeltaSweep::Channels
            }
            _ => false,
        };
        assert!(assemble(&gradient, isa, is_meant) >= 4);
    }
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

/// Third sweeps of delta rules with decays and with first and last states: threads find their places again beside products, and two blocks that
/// share a multiprocessor find their times again.
#[test]
fn third_sweeps_of_gated_delta_rules_on_older_devices_do_not_spill() {
    for (elem, deepest) in [(Elem::Bf16, 128), (Elem::F16, 128), (Elem::F32, 64)] {
        let gradient = adjoint(&model_of("gated_delta_rule", elem)).expect("differentiable");
        let is_meant = |s: &Schedule| {
            matches!(s, Schedule::ChunkDeltaBackward(s)
                if s.sweep == DeltaSweep::Gradients && s.places == 64 && s.depth <= deepest && !s.concurrent)
        };
        assert!(assemble(&gradient, Isa::Sm80, is_meant) >= 12, "{elem}");
    }
}
