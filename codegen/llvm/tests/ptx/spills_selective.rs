//! Kernels of selective scans where flags of packed sequences, softplus or a gate leave few registers do not spill.

use crate::spills::{assemble, assemble_for_hopper, model_of};
use oplus_codegen::schedules::{Pass, Schedule};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

/// The gradient of a standard model in a type.
fn gradient_of(name: &str, elem: Elem) -> Program {
    adjoint(&model_of(name, elem)).expect("differentiable")
}

/// Sixteen warps walk, also with saved states and in segments of time, for devices with and without mbarriers.
#[test]
fn packed_scans_of_many_warps_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.warps == 16);
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        for isa in Isa::ALL {
            assert!(assemble(&model_of("mamba_packed", elem), isa, is_meant) >= 7, "{elem}");
        }
    }
}

/// With softplus or a gate: saved states in segments of time, and narrow elements on older devices.
#[test]
fn scans_of_many_warps_with_dear_rows_do_not_spill() {
    let is_cut = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.warps == 16 && s.save && s.segmented);
    assert!(assemble_for_hopper(&model_of("selective_scan_softplus", Elem::Bf16), is_cut) >= 1);
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpace(s) if s.warps == 16);
    assert!(assemble(&model_of("selective_scan_gated", Elem::Bf16), Isa::Sm80, is_meant) >= 4);
}

/// Passes that save states, of which two blocks share a multiprocessor.
#[test]
fn passes_that_save_states_of_packed_sequences_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpaceBackward(s) if s.states == 4 && s.pass == Pass::Save);
    for elem in [Elem::Bf16, Elem::F32] {
        for isa in Isa::ALL {
            assert!(assemble(&gradient_of("mamba_packed", elem), isa, is_meant) >= 8, "{elem}");
        }
    }
}

/// Passes that find the carries of segments, with a gate.
#[test]
fn carries_of_segments_with_a_gate_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::StateSpaceBackward(s) if s.pass == Pass::Carry);
    assert!(assemble_for_hopper(&gradient_of("selective_scan_gated", Elem::F32), is_meant) >= 6);
}

/// Walks of gradients, of which walking warps have no more registers than those that copy.
#[test]
fn walks_of_gradients_with_softplus_or_flags_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::StateSpaceBackward(s)
            if s.pass == Pass::Walk && s.lanes <= 16 && s.registers == 0)
    };
    for name in ["selective_scan_softplus", "selective_scan_packed"] {
        let gradient = gradient_of(name, Elem::F32);
        assert!(assemble(&gradient, Isa::Sm80, is_meant) >= 12, "{name}");
        assert!(assemble_for_hopper(&gradient, is_meant) >= 4, "{name}");
    }
}
