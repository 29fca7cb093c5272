//! Outputs whose elements are what large terms leave of one another.
//!
//! The gradient of decays by chunks is a running sum against time, ḡ\[t\] = Σ_{s ≥ t} (q·q̄ − k·k̄)\[s\], whatever the decays are. The program's own
//! form of it is a product with each decay. So where decays leave next to nothing, and the program's bound is next to nothing, too, the
//! roundings of later terms remain.

use oplus_codegen::plan::Launch;
use oplus_codegen::stage::kind::{Cotangent, DeltaCotangent};
use oplus_codegen::stage::{Sink, Source, Stage};
use std::collections::BTreeSet;

/// The outputs of a plan that are such sums, or are computed of them: bit k is output k.
pub(super) fn outputs_that_cancel(steps: &[Launch]) -> u64 {
    let (mut outputs, mut buffers) = (0, BTreeSet::new());
    for step in steps {
        let stage = &step.stage;
        let reads_one = stage.sources.iter().any(|source| match *source {
            Source::Buffer(own) => buffers.contains(&own),
            Source::Output(own) => outputs >> own & 1 == 1,
            Source::Param(_) => false,
        });
        let is_energy = energies(stage, step.schedule.name());
        let cancel = stage.sinks.iter().enumerate().filter(|(k, _)| reads_one || is_energy(*k));
        for (_, sink) in cancel {
            match *sink {
                Sink::Output(own) => outputs |= 1 << own,
                Sink::Buffer(own) => drop(buffers.insert(own)),
            }
        }
    }
    outputs
}

/// Which outputs of a stage are gradients of decays, or may be, by a schedule that takes running sums for them.
fn energies(stage: &Stage, schedule: &str) -> impl Fn(usize) -> bool {
    let kind = stage.kind();
    let by_64 = kind.matrices_back().ok().filter(|_| schedule == "chunkwise_backward");
    let by_16 = kind.delta_back().ok().filter(|_| schedule == "chunk_delta_backward");
    move |k| {
        let is_64 = by_64.is_some_and(|form| matches!(form.outputs[k], Cotangent::Decay | Cotangent::Channels));
        let is_16 = |own| matches!(own, DeltaCotangent::OverDepth | DeltaCotangent::OverTime);
        is_64 || by_16.is_some_and(|form| is_16(form.outputs[k]))
    }
}

#[cfg(test)]
mod tests {
    use super::outputs_that_cancel;
    use oplus_codegen::plan::{Call, Planner};
    use oplus_codegen::target::Target;
    use oplus_dsl::Elem;
    use oplus_dsl::adjoint::adjoint;

    /// The names of outputs that cancel in the gradient of a model with so many keys and values.
    fn names(model: &str, keys: i64) -> Vec<String> {
        let models = oplus_front::model_programs();
        let model = models.iter().find(|program| program.name == model).expect("a model");
        let program = adjoint(&model.instantiate(Elem::Bf16)).expect("differentiable");
        let size = |axis: &String| match axis.as_str() {
            "T" => 2048,
            "K" | "V" => keys,
            _ => 8,
        };
        let sizes: Vec<i64> = program.axes.iter().map(size).collect();
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        let plan = planner.plan(&Call::contiguous(&program, &sizes)).expect("a plan");
        let cancels = outputs_that_cancel(&plan.steps);
        let own = (0..).zip(&program.outputs).filter(|(k, _)| cancels >> k & 1 == 1);
        own.map(|(_, output)| output.name.clone()).collect()
    }

    #[test]
    fn gradients_of_decays_by_chunks_cancel() {
        assert_eq!(names("gated_linear_attention", 8), ["g.bar"]);
        assert_eq!(names("retention", 64), ["g.bar"]);
        let by_16 = names("gated_linear_attention", 64);
        assert!(by_16.iter().any(|name| name == "g.bar") && !by_16.iter().any(|name| name == "v.bar"), "{by_16:?}");
    }

    #[test]
    fn gradients_that_go_step_by_step_do_not() {
        assert!(names("mamba", 8).is_empty());
    }
}
