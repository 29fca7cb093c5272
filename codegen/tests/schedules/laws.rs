//! The law of chunks and steps on the simulated device: whole = chunks threaded through the state = single steps, to the
//! bit: outputs, states, and the gradients of all that has a time. Ordered plans obey it wherever the whole is cut, fused
//! recurrences where tiles begin, when their gradients take the states that the calls have saved.

use std::collections::HashMap;

use oplus_codegen::plan::{Plan, Planner, Residual};
use oplus_codegen::simulate::{Buffer, Order};
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::step::{Step, step};
use oplus_dsl::testing::{Part, cut, inputs};

use crate::device::{Placement, Setting, Work, call, run_handing};

type Named = HashMap<String, Array>;

/// A model in f32, its one-step form and their gradients; and whether their calls are ordered, or save their states.
struct Law {
    whole: Program,
    step: Step,
    gradients: [Program; 2],
    ordered: bool,
}

/// The tensors that a call was given and has written, and the states that it has saved.
struct Done {
    tensors: Named,
    saved: Option<(Residual, Buffer)>,
}

impl Law {
    fn of(model: &Program, ordered: bool) -> Option<Law> {
        let (whole, mut step) = (model.instantiate(Elem::F32), step(model).ok()?);
        step.program = step.program.instantiate(Elem::F32);
        let gradients = [&whole, &step.program].map(|program| adjoint(program).expect("differentiable"));
        Some(Law { whole, step, gradients, ordered })
    }

    /// The plan of a call, and the form of the states that it saves; `None` where it cannot save or take up any.
    fn plan(&self, program: &Program, sizes: &[usize], saved: Option<&Residual>) -> Option<(Plan, Option<Residual>)> {
        let new = if self.ordered { Planner::ordered } else { Planner::new };
        let planner = new(program, &Target::H200).expect("cuts");
        let call = call(program, sizes, Placement::Contiguous);
        match (self.ordered, saved) {
            (true, _) => Some((planner.plan(&call).expect("plans"), None)),
            (false, Some(form)) => Some((planner.plan_saved(&call, form).expect("plans")?, None)),
            (false, None) => planner.plan_saving(&call).expect("plans").map(|(plan, form)| (plan, Some(form))),
        }
    }

    /// Whether a gradient can take up states that its call has saved.
    fn saves(&self) -> bool {
        let sizes = |program: &Program| program.axes.iter().map(|axis| size(axis, 5)).collect::<Vec<_>>();
        let Some((_, form)) = self.plan(&self.whole, &sizes(&self.whole), None) else { return false };
        self.plan(&self.gradients[0], &sizes(&self.gradients[0]), form.as_ref()).is_some()
    }

    /// Runs a program on tensors by name, and on the states that an earlier call has saved.
    fn run(&self, program: &Program, given: &Named, times: usize, saved: Option<&(Residual, Buffer)>) -> Done {
        let sizes: Vec<usize> = program.axes.iter().map(|axis| size(axis, times)).collect();
        let (plan, form) = self.plan(program, &sizes, saved.map(|(form, _)| form)).expect("a plan");
        let work = Work::of(plan);
        let inputs: Vec<Array> = program.params.iter().map(|param| given[&param.name].clone()).collect();
        let how = Setting { placement: Placement::Contiguous, order: Order::Random(1), isa: Isa::Sm90a };
        let room = form.as_ref().map_or(0, |form| form.len as usize);
        let buffer = saved.map_or_else(|| Buffer::unwritten(Elem::F32, room), |(_, states)| states.clone());
        let (outputs, states) = run_handing(program, &work, &inputs, &sizes, how, buffer);
        let tensors = program.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect();
        Done { tensors, saved: form.map(|form| (form, states)) }
    }

    /// Where the time stands among the axes of a tensor of the whole program.
    fn time_of(&self, name: &str) -> Option<usize> {
        let params = self.whole.params.iter().map(|p| (&p.name, &p.axes));
        let mut all = params.chain(self.whole.outputs.iter().map(|o| (&o.name, &o.axes)));
        let axes: &Vec<Axis> = all.find(|(known, _)| *known == name)?.1;
        axes.iter().position(|axis| self.whole.axis_name(*axis) == self.step.axis)
    }

    /// The times of a tensor from `from` on; a step's have no time.
    fn cut(&self, name: &str, array: &Array, from: usize, part: Part) -> Array {
        let Some(at) = self.time_of(name) else { return array.clone() };
        let mut kept = cut(array, Some(at), from..from + part.times());
        if part.is_step() {
            kept.sizes.remove(at);
        }
        kept
    }

    /// The outputs of every part, each from the state that the one before left, and with what they were computed from.
    fn forward(&self, all: &Named, parts: &[Part]) -> Vec<Done> {
        let (mut done, mut from): (Vec<Done>, usize) = (vec![], 0);
        for part in parts {
            let mut own: Named = all.iter().map(|(name, x)| (name.clone(), self.cut(name, x, from, *part))).collect();
            if let Some(before) = done.last() {
                own.extend(self.step.states.iter().map(|s| (s.param.clone(), before.tensors[&s.output].clone())));
            }
            let program = if part.is_step() { &self.step.program } else { &self.whole };
            let ran = self.run(program, &own, part.times(), None);
            own.extend(ran.tensors);
            done.push(Done { tensors: own, ..ran });
            from += part.times();
        }
        done
    }

    /// The gradients of every part, from the last to the first.
    fn backward(&self, done: &[Done], parts: &[Part], bars: &Named) -> Vec<Named> {
        let mut all: Vec<Named> = vec![];
        let mut from: usize = parts.iter().map(|part| part.times()).sum();
        for (own, part) in done.iter().zip(parts).rev() {
            from -= part.times();
            let mut given = own.tensors.clone();
            given.extend(bars.iter().map(|(name, bar)| (format!("{name}.bar"), self.cut(name, bar, from, *part))));
            if let Some(next) = all.first() {
                let of = |param: &String| next[&format!("{param}.bar")].clone();
                given.extend(self.step.states.iter().map(|s| (format!("{}.bar", s.output), of(&s.param))));
            }
            let program = &self.gradients[usize::from(part.is_step())];
            all.insert(0, self.run(program, &given, part.times(), own.saved.as_ref()).tensors);
        }
        all
    }

    /// The parts of a tensor with time, put together; of another one, that of the first part or the last.
    fn joined(&self, name: &str, all: &[&Array], first: bool) -> Vec<u64> {
        let Some(at) = self.time_of(name) else { return bits(all[if first { 0 } else { all.len() - 1 }]) };
        let outer: usize = all[0].sizes[..at].iter().product();
        let row = |array: &Array, o: usize| {
            let n = array.data.len() / outer;
            bits(array)[o * n..(o + 1) * n].to_vec()
        };
        (0..outer).flat_map(|o| all.iter().flat_map(move |array| row(array, o))).collect()
    }

    fn check(&self, parts: &[Part]) {
        let times = parts.iter().map(|part| part.times()).sum();
        let sizes: Vec<usize> = self.whole.axes.iter().map(|axis| size(axis, times)).collect();
        let mut required = self.whole.clone();
        required.params.iter_mut().for_each(|param| param.default = None);
        let given = inputs(&required, &sizes, 3).into_iter().flatten().map(rounded);
        let all: Named = self.whole.params.iter().map(|param| param.name.clone()).zip(given).collect();
        let (whole, done) = (self.forward(&all, &[Part::Chunk(times)]), self.forward(&all, parts));
        let outputs: Vec<&String> = self.whole.outputs.iter().map(|output| &output.name).collect();
        for name in &outputs {
            let found: Vec<&Array> = done.iter().map(|part| &part.tensors[*name]).collect();
            assert_eq!(self.joined(name, &found, false), bits(&whole[0].tensors[*name]), "{}: {name}", self.whole.name);
        }
        if self.whole.has_matrix_scans() && parts.iter().any(|part| part.is_step()) {
            // The gradient of a step adds up the terms of a cotangent in another order than that of a recurrence of matrices.
            return;
        }
        let bars: Named = outputs.iter().map(|name| ((*name).clone(), ramp(&whole[0].tensors[*name].sizes))).collect();
        let expected = self.backward(&whole, &[Part::Chunk(times)], &bars);
        let found = self.backward(&done, parts, &bars);
        for param in &self.whole.params {
            let is_state = self.step.states.iter().any(|state| state.param == param.name);
            if is_state || self.time_of(&param.name).is_some() {
                let name = format!("{}.bar", param.name);
                let parts: Vec<&Array> = found.iter().map(|part| &part[&name]).collect();
                let what = format!("{}: {name}", self.whole.name);
                assert_eq!(self.joined(&param.name, &parts, true), bits(&expected[0][&name]), "{what}");
            }
        }
    }
}

fn size(axis: &str, times: usize) -> usize {
    match axis {
        "T" => times,
        "N" | "K" => 3,
        _ => 2,
    }
}

/// Numbers that f32 holds.
fn rounded(mut array: Array) -> Array {
    if let Data::Float(all) = &mut array.data {
        all.iter_mut().for_each(|x| *x = f64::from(*x as f32));
    }
    array
}

fn ramp(sizes: &[usize]) -> Array {
    let n: usize = sizes.iter().product();
    rounded(Array::floats(sizes, (0..n).map(|k| (k as f64 * 0.7).sin()).collect::<Vec<_>>()))
}

fn bits(array: &Array) -> Vec<u64> {
    array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect()
}

#[test]
fn ordered_steps_and_chunks_are_the_whole() {
    let mut checked = 0;
    for law in oplus_front::model_programs().iter().filter_map(|model| Law::of(model, true)) {
        law.check(&[Part::Step; 5]);
        law.check(&[Part::Chunk(4), Part::Chunk(1), Part::Step, Part::Chunk(6)]);
        law.check(&[Part::Chunk(4), Part::Chunk(1), Part::Chunk(6)]);
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
}

#[test]
fn chunks_that_begin_where_tiles_do_are_the_whole() {
    let mut checked = 0;
    for law in oplus_front::model_programs().iter().filter_map(|model| Law::of(model, false)) {
        let planner = |program: &Program| Planner::new(program, &Target::H200).expect("cuts");
        let fused = planner(&law.whole).cut(CutKind::Contracted).is_some()
            && planner(&law.gradients[0]).cut(CutKind::BackwardScan).is_some();
        if fused && law.saves() {
            law.check(&[Part::Chunk(32), Part::Chunk(32), Part::Chunk(5)]);
            checked += 1;
        }
    }
    assert!(checked >= 7, "{checked}");
}
