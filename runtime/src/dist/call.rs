//! Calls of a kernel on one rank, and their gradients.

use std::collections::HashMap;

use oplus_dsl::ir::Program;

use super::agree::{Intent, hash};
use super::parts::Division;
use super::plan::Plan;
use super::run::{self, Run};
use super::segments::{Estimate, Segments};
use super::{Group, Plans};
use crate::bind::{Binding, Known, bind, check_count, check_outputs};
use crate::execute::{Sink, allocated};
use crate::tensor::Storage;
use crate::{Device, Error, Tensor};

/// How a call was divided.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) group: Group,
    pub(crate) axis: String,
}

impl Shard {
    /// A division before any call.
    pub(crate) fn new(group: &Group, axis: &str) -> Shard {
        Shard { group: group.clone(), axis: axis.to_owned() }
    }

    /// Runs a program of shards; what the tensors agree on, and the outputs.
    pub(crate) fn run<'t>(
        &mut self,
        plans: &Plans,
        program: &Program,
        known: &Known<'t>,
        inputs: &[Option<&'t Tensor>],
        sinks: &[Sink<'t>],
    ) -> Result<(Binding<'t>, Vec<Option<Tensor>>), Error> {
        check_count("inputs", program.params.len(), inputs.len())?;
        check_count("outputs", program.outputs.len(), sinks.len())?;
        let wanted: Vec<bool> = sinks.iter().map(|sink| !matches!(sink, Sink::Skip)).collect();
        let plan = plans.plan(program, &self.axis, &wanted)?;
        let into: Vec<Option<&Tensor>> = sinks.iter().map(Sink::given).collect();
        let binding = bind(program, known, inputs, &into)?;
        check_outputs(program, inputs, &into)?;
        let own = program.axis(&self.axis).map_or(0, |axis| binding.sizes[axis.0 as usize]);
        self.check_own(own)?;
        let shards = self.group.agree(self.intent(plan.hash, program, &binding, inputs), own)?;
        self.group = self.group.knowing(shards.clone());
        let call = Call { shard: self, plan: &plan, program, shards: &shards };
        let outputs = match Division::of(program, &binding, &shards, &self.group) {
            Some(division) => call.in_parts(&division, &binding, inputs, sinks)?,
            None => call.whole(&binding, inputs, sinks)?,
        };
        Ok((binding, outputs))
    }

    /// The plan of a call, and how many segments its shard has.
    fn segmented<'p>(&self, plan: &'p Plan, call: &Estimate<'_>) -> (&'p Plan, usize) {
        let Some(in_segments) = plan.in_segments.as_deref().filter(|_| call.size > 0) else { return (plan, 1) };
        let key = (call.binding.sizes.clone(), call.binding.elem, call.given.to_vec());
        let estimated = || plan.chosen.get(key, || call.fastest(plan, in_segments));
        let count = self.group.segments().unwrap_or_else(estimated);
        if count > 1 && call.size.is_multiple_of(count) { (in_segments, count) } else { (plan, 1) }
    }

    /// Checks that this rank's shard has the size that the group was told.
    fn check_own(&self, own: usize) -> Result<(), Error> {
        let told = self.group.shards().map_or(own, |told| told[self.group.rank()]);
        if told == own {
            return Ok(());
        }
        let (axis, first, second) = (self.axis.clone(), "Group::with_shards".into(), "the tensors of this rank".into());
        Err(Error::ShapeMismatch { axis, first, first_size: told, second, second_size: own })
    }

    /// The call that this rank is about to make, for its agreement with the others.
    fn intent(&self, plan: u64, program: &Program, binding: &Binding<'_>, inputs: &[Option<&Tensor>]) -> Intent {
        let axes = program.axes.iter().zip(&binding.sizes).filter(|(name, _)| **name != self.axis);
        let sizes = axes.map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(",");
        let sizes = format!("{sizes} in {}", self.group.parts());
        let given: Vec<bool> = inputs.iter().map(Option::is_some).collect();
        Intent { program: plan, sizes: hash(&sizes), tensors: hash(&format!("{} {given:?}", binding.elem)) }
    }
}

/// A call whose ranks have agreed.
struct Call<'c> {
    shard: &'c Shard,
    plan: &'c Plan,
    program: &'c Program,
    shards: &'c [usize],
}

impl Call<'_> {
    /// Runs the call as it is.
    fn whole<'t>(
        &self,
        binding: &Binding<'t>,
        inputs: &[Option<&'t Tensor>],
        sinks: &[Sink<'t>],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        let (plan, segments) = self.segmented(binding, inputs);
        let mut runs = [self.run(binding, inputs, sinks, segments)];
        run::all(&mut runs, plan)?;
        Ok(runs.into_iter().next().map_or_else(Vec::new, Run::outputs))
    }

    /// Runs the parts of the call, each of which writes its part of every output.
    fn in_parts(
        &self,
        division: &Division,
        binding: &Binding<'_>,
        inputs: &[Option<&Tensor>],
        sinks: &[Sink<'_>],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        let device = binding.home.map_or(Device::Cpu, Storage::device);
        let outputs = allocated(self.program, binding, sinks, &device)?;
        let parts = division.parts(self.program, binding, inputs, &outputs)?;
        let bindings: Vec<Binding<'_>> = parts.iter().map(|part| part.binding(binding)).collect();
        let (inputs, sinks): (Vec<_>, Vec<_>) = parts.iter().map(|part| (part.inputs(), part.sinks())).unzip();
        // All parts have the segments of the first.
        let (Some(first), Some(of_first)) = (bindings.first(), inputs.first()) else { return Ok(outputs) };
        let (plan, segments) = self.segmented(first, of_first);
        let of_part = bindings.iter().zip(&inputs).zip(&sinks);
        let mut runs: Vec<Run<'_>> =
            of_part.map(|((binding, inputs), sinks)| self.run(binding, inputs, sinks, segments)).collect();
        run::all(&mut runs, plan)?;
        Ok(outputs)
    }

    /// The plan of a call, and the segments of its shard.
    fn segmented(&self, binding: &Binding<'_>, inputs: &[Option<&Tensor>]) -> (&Plan, Segments) {
        let (axis, program, size) = (self.shard.axis.as_str(), self.program, self.shards[self.shard.group.rank()]);
        let given: Vec<bool> = inputs.iter().map(Option::is_some).collect();
        let estimate = Estimate { axis, program, binding, given: &given, size };
        let (plan, count) = self.shard.segmented(self.plan, &estimate);
        (plan, Segments { count, size })
    }

    /// The state before the first phase.
    fn run<'r>(
        &'r self,
        binding: &'r Binding<'r>,
        inputs: &[Option<&Tensor>],
        sinks: &'r [Sink<'r>],
        segments: Segments,
    ) -> Run<'r> {
        let given = self.program.params.iter().zip(inputs);
        let tensors: HashMap<String, Tensor> =
            given.filter_map(|(param, tensor)| Some((param.name.clone(), (*tensor)?.clone()))).collect();
        let (group, axis) = (&self.shard.group, self.shard.axis.as_str());
        let (totals, gathered) = (HashMap::new(), HashMap::new());
        let (program, shards) = (self.program, self.shards);
        Run { group, axis, program, binding, shards, segments, sinks, tensors, totals, gathered }
    }
}
