//! Kernels that take most registers do not spill: of each class of programs one form, under the schedules that take most.

use crate::clean::assemble_once;
use oplus_codegen::key::Key;
use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::lower;
use oplus_codegen::schedules::{ChunkDelta, RuleSweep, Schedule, Unit};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use std::collections::BTreeSet;

/// A standard model in `bf16`.
pub(crate) fn model(name: &str) -> Program {
    model_of(name, Elem::Bf16)
}

/// A standard model in a type.
pub(crate) fn model_of(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem)
}

/// Assembles the kernels of a program under some schedules for an instruction set, each once, and says how many there are.
pub(crate) fn assemble(program: &Program, isa: Isa, is_meant: impl Fn(&Schedule) -> bool) -> usize {
    assemble_each(program, isa, is_meant, |own| own)
}

/// Assembles the kernels of a program under some schedules for Hopper, also those that all devices run, each once, and says how many
/// there are.
pub(crate) fn assemble_for_hopper(program: &Program, is_meant: impl Fn(&Schedule) -> bool) -> usize {
    assemble_each(program, Isa::Sm90a, is_meant, |_| Isa::Sm90a)
}

/// Assembles the kernels of a program under some schedules, and those that also save states for its gradient, each once, for the device
/// that a function gives for its instruction set, and says how many there are.
fn assemble_each(
    program: &Program,
    isa: Isa,
    is_meant: impl Fn(&Schedule) -> bool,
    device: impl Fn(Isa) -> Isa,
) -> usize {
    let stages: Vec<_> = cuts(program).expect("cuts").all().flat_map(|cut| cut.stages).collect();
    let all = stages.iter().flat_map(|stage| variants(stage, isa)).flat_map(|(stage, schedule)| {
        let saving = schedule.saving(&stage);
        [Some(schedule), saving].into_iter().flatten().map(move |schedule| (stage.clone(), schedule))
    });
    let mut seen = BTreeSet::new();
    for (stage, schedule) in all.filter(|(_, schedule)| is_meant(schedule)) {
        let own = schedule.isa(isa);
        let key = Key::of(&stage, &*schedule, own);
        if seen.insert(key) {
            assemble_once(key, own, device(own), || lower(&stage, &schedule, own).expect("lowers"));
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

/// With one chunk in flight more blocks share a multiprocessor, and each has fewer registers.
#[test]
fn chunks_of_channels_with_one_in_flight_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.stages == 1);
    for name in ["gated_linear_attention", "gated_linear_attention_packed_states"] {
        for elem in [Elem::Bf16, Elem::F16] {
            assert!(assemble(&model_of(name, elem), Isa::Sm90a, is_meant) >= 8, "{name} {elem}");
        }
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

/// Warps that round `f16` or divide `f32` and those that multiply share the registers, also where a width ends inside of a part, beside a gate,
/// and where a block finds its sequence.
#[test]
fn chunks_of_f16_and_f32_by_warpgroups_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        for (name, depths) in
            [("ssd", 64..=128), ("ssd_packed", 128..=128), ("mamba2", 64..=128), ("ssd_packed_states", 128..=128)]
        {
            let is_meant = |s: &Schedule| match s {
                Schedule::Chunkwise(s) => s.unit == Unit::Warpgroup && depths.contains(&s.depth),
                _ => false,
            };
            assert!(assemble(&model_of(name, elem), Isa::Sm90a, is_meant) >= 4, "{name} {elem}");
        }
    }
}

/// Of the greatest depth, for slices of the width, by warpgroups that copy themselves and beside warps that only copy.
#[test]
fn slices_of_bf16_by_warpgroups_do_not_spill() {
    for name in ["ssd", "ssd_softplus", "ssd_packed_states"] {
        let is_meant = |s: &Schedule| match s {
            Schedule::Chunkwise(s) => s.unit == Unit::Warpgroup && s.depth == 128 && s.wide && !s.ends && s.heads == 1,
            _ => false,
        };
        assert!(assemble(&model(name), Isa::Sm90a, is_meant) >= 4, "{name}");
    }
}

/// Blocks that each have a sequence, by whole accesses, of the most state and of the longest chunks.
#[test]
fn chunks_of_sequences_in_f32_do_not_spill() {
    let is_meant = |s: &Schedule| match s {
        Schedule::Chunkwise(s) => s.unit == Unit::Warp && s.vector > 1 && s.depth >= 64 && !s.ends,
        _ => false,
    };
    let program = model_of("ssd_packed_states", Elem::F32);
    assert!(assemble(&program, Isa::Sm80, is_meant) >= 12);
    assert!(assemble_for_hopper(&program, is_meant) >= 12);
}

#[test]
fn decays_of_channels_in_tf32_do_not_spill() {
    for elem in [Elem::F16, Elem::F32] {
        let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.depth >= 64);
        assert!(assemble_for_hopper(&model_of("gated_linear_attention", elem), is_meant) >= 16, "{elem}");
    }
    let is_deep = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.depth == 128 && s.vector > 1 && s.wide);
    assert!(assemble(&model_of("gated_linear_attention", Elem::F32), Isa::Sm80, is_deep) >= 4);
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

/// On older devices, too: slices in `bf16`, and of the greatest depth in `f32` beside resets and sequences.
#[test]
fn chunks_of_single_elements_on_older_devices_do_not_spill() {
    for (name, elem, depth, least) in [
        ("ssd", Elem::Bf16, 64, 4),
        ("mamba2", Elem::Bf16, 64, 4),
        ("ssd_packed_states", Elem::Bf16, 64, 4),
        ("ssd_packed", Elem::F32, 128, 4),
        ("ssd_packed_states", Elem::F32, 128, 4),
    ] {
        let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.vector == 1 && s.depth == depth);
        assert!(assemble(&model_of(name, elem), Isa::Sm80, is_meant) >= least, "{name} {elem}");
    }
}

/// Packed sequences in `bf16`, also where a width ends inside of a part.
#[test]
fn packed_sequences_by_warps_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::Chunkwise(s) if s.depth == 64 && s.vector > 1);
    assert!(assemble(&model("ssd_packed"), Isa::Sm80, is_meant) >= 4);
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

/// By whole accesses, beside the first and the last state: of the greatest depth in `f32`, and where two blocks share a multiprocessor.
#[test]
fn delta_rules_with_states_do_not_spill() {
    let is_deep = |s: &ChunkDelta| s.wide && s.vector > 1 && s.depth == 128 && s.places == 64;
    // With two keys only walks over prepared tiles have room.
    for (name, least, has_room) in
        [("delta_rule", 3, true), ("gated_delta_rule", 3, true), ("kda", 3, true), ("rwkv7", 1, false)]
    {
        let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDelta(s) if is_deep(s) && (has_room || s.sweep == RuleSweep::Walk));
        assert!(assemble(&model_of(name, Elem::F32), Isa::Sm90a, is_meant) >= least, "{name}");
    }
    let shared = |s: &Schedule| matches!(s, Schedule::ChunkDelta(s) if !s.padded && s.blocks == 2 && s.depth == 64);
    for isa in Isa::ALL {
        assert!(assemble(&model_of("gated_delta_rule", Elem::F16), isa, shared) >= 4);
    }
}

/// Selective scans of narrow elements that unpack four chunks in an iteration, or two beside final states.
#[test]
fn scans_that_unpack_many_chunks_do_not_spill() {
    for elem in [Elem::Bf16, Elem::F16] {
        let program = model_of("selective_scan", elem);
        let mut without_states = program.clone();
        without_states.outputs.retain(|output| output.name != "h_last");
        for (program, chunks) in [(&program, 2), (&without_states, 4)] {
            let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.vector == 8 && s.unroll == chunks && s.blocks == 2);
            assert!(assemble_for_hopper(program, is_meant) >= 2, "{elem} {chunks}");
        }
    }
}

/// Where the rows are dear, sixteen warps walk, with few registers each: whole, in segments, and their ends.
#[test]
fn selective_scans_of_many_warps_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.warps == 16);
    for elem in [Elem::Bf16, Elem::F32] {
        assert!(assemble_for_hopper(&model_of("mamba", elem), is_meant) >= 7, "{elem}");
    }
}

/// In segments of time, for older devices as well.
#[test]
fn selective_scans_in_segments_on_older_devices_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.warps == 16 && s.segmented);
    assert!(assemble(&model_of("mamba", Elem::F32), Isa::Sm80, is_meant) >= 3);
}

/// Many copy warps, which also compute a gate, beside four states.
#[test]
fn selective_scans_of_four_states_with_a_gate_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.lanes == 2);
    for elem in [Elem::Bf16, Elem::F32] {
        assert!(assemble_for_hopper(&model_of("selective_scan_gated", elem), is_meant) >= 2, "{elem}");
    }
}

/// Flags of packed sequences beside most warps, and beside eight states of a lane.
#[test]
fn selective_scans_of_packed_sequences_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.warps == 16 || s.states == 8);
    assert!(assemble_for_hopper(&model_of("mamba_packed", Elem::F32), is_meant) >= 11);
}

/// Eight states of a lane, which are saved for the gradient.
#[test]
fn selective_scans_that_save_many_states_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.states == 8 && s.save);
    for (name, elem) in [("selective_scan", Elem::F32), ("mamba", Elem::Bf16), ("mamba", Elem::F32)] {
        let program = model_of(name, elem);
        for isa in Isa::ALL {
            assert!(assemble(&program, isa, is_meant) >= 2, "{name} {elem}");
        }
    }
}
