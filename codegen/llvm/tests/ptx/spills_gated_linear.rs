//! Kernels of gated linear attention in chunks of 16 times that take most registers do not spill.

use crate::spills::{assemble, assemble_for_hopper, model_of};
use oplus_codegen::schedules::{DeltaSweep, Schedule};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;

const ELEMS: [Elem; 3] = [Elem::Bf16, Elem::F16, Elem::F32];

/// Of packed sequences, which have bounds in registers, with 64 places of the width and the most keys.
#[test]
fn walks_of_packed_sequences_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDelta(s) if s.depth == 128 && s.places == 64);
    for elem in ELEMS {
        let program = model_of("gated_linear_attention_packed_states", elem);
        assert!(assemble_for_hopper(&program, is_meant) >= 4, "{elem}");
    }
}

/// Walks that store gradients of values, over prepared tiles, of which two blocks share a multiprocessor, and over single elements.
#[test]
fn walks_of_gradients_of_packed_sequences_do_not_spill() {
    let is_meant = |s: &Schedule| {
        matches!(s, Schedule::ChunkDeltaBackward(s)
            if s.depth == 64 && s.places == 64 && s.sweep == DeltaSweep::Cotangents && (s.prepared || s.vector == 1))
    };
    for elem in ELEMS {
        let gradient = adjoint(&model_of("gated_linear_attention_packed_states", elem)).expect("differentiable");
        assert!(assemble_for_hopper(&gradient, is_meant) >= 3, "{elem}");
    }
}

/// Before Hopper in two parts, with first and last states.
#[test]
fn walks_on_older_devices_do_not_spill() {
    let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDelta(s) if s.depth == 64 && s.places == 64 && !s.padded);
    for name in ["gated_linear_attention", "gated_linear_attention_packed_states"] {
        assert!(assemble(&model_of(name, Elem::F32), Isa::Sm80, is_meant) >= 4, "{name}");
    }
}
