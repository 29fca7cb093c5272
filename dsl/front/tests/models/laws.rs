//! Whole = chunks = single steps: outputs, states and gradients.
//!
//! In sequence and rounded to f32, outputs and states, and the gradients of all that has a time, agree bit for bit: both
//! do the same operations. The gradients of what all times share are sums over time, which chunks add up in another order:
//! they agree to rounding.

use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Mode, Order, Precision};
use oplus_dsl::ir::Program;
use oplus_dsl::step::{Step, step};

use crate::harness::{Named, Sizes, close, convolved_scan, cotangents, floats, gradients, inputs, model, run};

const MODE: Mode = Mode { precision: Precision::Storage, order: Order::Sequential };

/// Sizes of all axes but T.
const SIZES: [(&str, usize); 8] = [("B", 2), ("G", 2), ("D", 3), ("N", 3), ("H", 2), ("K", 2), ("V", 3), ("P", 2)];

/// How a time of 7 is cut: with empty chunks and chunks of one element among them.
const CUTS: [&[usize]; 4] = [&[7], &[3, 4], &[0, 1, 5, 0, 1], &[1, 1, 1, 1, 1, 1, 1]];

/// The models that have a step, and a scan behind a convolution.
fn models() -> Vec<(Program, Step)> {
    let with_step = |program: Program| step(&program).ok().map(|step| (program, step));
    oplus_front::model_programs().into_iter().chain([convolved_scan(0)]).filter_map(with_step).collect()
}

/// A run over some times: how it was made, and its results.
struct Run {
    program: Program,
    times: usize,
    inputs: Named,
    outputs: Named,
}

impl Run {
    fn of(program: &Program, times: usize, inputs: Named) -> Run {
        let outputs = run(program, &inputs, &sizes(times), MODE);
        Run { program: program.clone(), times, inputs, outputs }
    }

    fn gradients(&self, cotangents: &Named) -> Named {
        gradients(&self.program, (&self.inputs, &self.outputs, cotangents), &sizes(self.times), MODE)
    }
}

fn sizes(times: usize) -> Vec<(&'static str, usize)> {
    [&SIZES[..], &[("T", times)]].concat()
}

/// Where the time stands in the shape of a tensor of the whole program.
fn time_of(whole: &Program, name: &str) -> Option<usize> {
    let time = whole.axis("T")?;
    let params = whole.params.iter().map(|p| (&p.name, &p.axes));
    let mut tensors = params.chain(whole.outputs.iter().map(|o| (&o.name, &o.axes)));
    tensors.find(|(known, _)| *known == name)?.1.iter().position(|axis| *axis == time)
}

/// Some times of a tensor; all of one without time.
fn part(whole: &Program, name: &str, array: &Array, from: usize, to: usize) -> Array {
    let Some(at) = time_of(whole, name) else { return array.clone() };
    let (outer, n, inner) = around(&array.sizes, at);
    let rows = (0..outer).flat_map(|o| &floats(array)[(o * n + from) * inner..(o * n + to) * inner]);
    let mut sizes = array.sizes.clone();
    sizes[at] = to - from;
    Array::floats(&sizes, rows.copied().collect::<Vec<_>>())
}

fn around(sizes: &[usize], at: usize) -> (usize, usize, usize) {
    (sizes[..at].iter().product(), sizes[at], sizes[at + 1..].iter().product())
}

/// Parts of a tensor along time, put together.
fn joined(at: usize, parts: &[&Array]) -> Array {
    let mut sizes = parts[0].sizes.clone();
    sizes[at] = parts.iter().map(|part| part.sizes[at]).sum();
    let outer: usize = sizes[..at].iter().product();
    let row = |part: &Array, o: usize| {
        let (_, n, inner) = around(&part.sizes, at);
        floats(part)[o * n * inner..(o + 1) * n * inner].to_vec()
    };
    let data: Vec<f64> = (0..outer).flat_map(|o| parts.iter().flat_map(move |part| row(part, o))).collect();
    Array::floats(&sizes, data)
}

/// A run in chunks, each from the state that the one before left; `steps` runs chunks of one time by the one-step form.
struct Chunks<'a> {
    whole: &'a Program,
    step: &'a Step,
    cut: &'a [usize],
    steps: bool,
    runs: Vec<Run>,
}

impl<'a> Chunks<'a> {
    fn of(whole: &'a Program, step: &'a Step, all: &Named, cut: &'a [usize], steps: bool) -> Chunks<'a> {
        let mut chunks = Chunks { whole, step, cut, steps, runs: vec![] };
        let mut from = 0;
        for times in cut {
            let mut given: Named = all.keys().map(|name| (name.clone(), chunks.cut(name, &all[name], from))).collect();
            if let Some(before) = chunks.runs.last() {
                let states = step.states.iter().map(|s| (s.param.clone(), before.outputs[&s.output].clone()));
                given.extend(states);
            }
            let program = if steps { step.program.instantiate(Elem::F32) } else { whole.clone() };
            chunks.runs.push(Run::of(&program, *times, given));
            from += times;
        }
        chunks
    }

    /// The part of a tensor that belongs to the next chunk.
    fn cut(&self, name: &str, array: &Array, from: usize) -> Array {
        let part = part(self.whole, name, array, from, from + self.cut[self.runs.len()]);
        if self.steps { self.without_time(name, part) } else { part }
    }

    fn without_time(&self, name: &str, mut array: Array) -> Array {
        if let Some(at) = time_of(self.whole, name) {
            array.sizes.remove(at);
        }
        array
    }

    fn with_time(&self, name: &str, array: &Array) -> Array {
        let mut array = array.clone();
        if let Some(at) = time_of(self.whole, name).filter(|_| self.steps) {
            array.sizes.insert(at, 1);
        }
        array
    }

    /// An output of the whole: joined along time, or the last chunk's.
    fn output(&self, name: &str) -> Array {
        self.along_time(name, &self.runs.iter().map(|run| &run.outputs[name]).collect::<Vec<_>>())
    }

    fn along_time(&self, name: &str, parts: &[&Array]) -> Array {
        let parts: Vec<Array> = parts.iter().map(|part| self.with_time(name, part)).collect();
        match time_of(self.whole, name) {
            Some(at) => joined(at, &parts.iter().collect::<Vec<_>>()),
            None => parts[parts.len() - 1].clone(),
        }
    }

    /// The gradients of every chunk, from the last to the first; a state's cotangent is what the next chunk asks for.
    fn gradients(&self, cotangents: &Named) -> Vec<Named> {
        let mut all: Vec<Named> = vec![];
        let mut to: usize = self.cut.iter().sum();
        for (run, times) in self.runs.iter().zip(self.cut).rev() {
            let cut = |name: &String, bar: &Array| {
                let part = part(self.whole, name, bar, to - times, to);
                if self.steps { self.without_time(name, part) } else { part }
            };
            let mut bars: Named = cotangents.iter().map(|(name, bar)| (name.clone(), cut(name, bar))).collect();
            if let Some(next) = all.first() {
                bars.extend(self.step.states.iter().map(|s| (s.output.clone(), next[&s.param].clone())));
            }
            all.insert(0, run.gradients(&bars));
            to -= times;
        }
        all
    }
}

/// Compares the gradients of chunks with those of the whole: to the bit, but for single steps of recurrences of matrices, whose
/// products are written out and have a gradient that adds in another order.
fn compare_gradients(chunks: &Chunks<'_>, whole: &Named, parts: &[Named]) {
    let has_matrices = chunks.whole.has_matrix_scans();
    let same = |what: &str, found: &Array, expected: &Array| match chunks.steps && has_matrices {
        true => close(what, floats(found), floats(expected), 1e-5),
        false => assert_eq!(*found, *expected, "{what}"),
    };
    for (name, expected) in whole {
        let what = format!("{}, the gradient of {name} for {:?}", chunks.whole.name, chunks.cut);
        let given: Vec<&Array> = parts.iter().map(|part| &part[name]).collect();
        if chunks.step.states.iter().any(|state| state.param == *name) {
            same(&what, given[0], expected);
        } else if time_of(chunks.whole, name).is_some() {
            same(&what, &chunks.along_time(name, &given), expected);
        } else {
            let sum = |k: usize| given.iter().map(|part| floats(part)[k]).sum::<f64>();
            let found: Vec<f64> = (0..floats(expected).len()).map(sum).collect();
            close(&what, &found, floats(expected), 1e-5);
        }
    }
}

/// Checks one way of cutting.
fn check(program: &Program, step: &Step, all: &Named, cut: &[usize], steps: bool) {
    let whole = Run::of(program, cut.iter().sum(), all.clone());
    let chunks = Chunks::of(program, step, all, cut, steps);
    for (name, expected) in &whole.outputs {
        assert_eq!(chunks.output(name), *expected, "{}, output {name} for {cut:?}", program.name);
    }
    let bars = cotangents(&whole.outputs, 5);
    compare_gradients(&chunks, &whole.gradients(&bars), &chunks.gradients(&bars));
}

/// The program in f32, and its random inputs, rounded to f32.
fn prepared(program: &Program, sizes: Sizes<'_>, seed: u64) -> (Program, Named) {
    let mut all = inputs(program, sizes, seed, |_| true);
    for array in all.values_mut().filter(|array| array.as_floats().is_some()) {
        let rounded: Vec<f64> = floats(array).iter().map(|x| f64::from(*x as f32)).collect();
        *array = Array::floats(&array.sizes, rounded);
    }
    (program.instantiate(Elem::F32), all)
}

#[test]
fn every_recurrence_but_the_packed_ones_has_a_step() {
    let without: Vec<String> = oplus_front::model_programs()
        .into_iter()
        .filter(|program| step(program).is_err() && program.axis("T").is_some())
        .map(|program| program.name)
        .collect();
    assert!(without.iter().all(|name| name.contains("_packed")), "{without:?}");
    assert_eq!(without.len(), 11, "{without:?}");
}

#[test]
fn chunks_threaded_through_the_state_are_the_whole() {
    for (k, (program, step)) in models().into_iter().enumerate() {
        let (program, all) = prepared(&program, &sizes(7), k as u64);
        for cut in CUTS {
            check(&program, &step, &all, cut, false);
        }
    }
}

#[test]
fn single_steps_are_the_whole() {
    for (k, (program, step)) in models().into_iter().enumerate() {
        let (program, all) = prepared(&program, &sizes(7), 50 + k as u64);
        check(&program, &step, &all, CUTS[3], true);
    }
}

#[test]
fn a_step_from_nothing_starts_at_the_default_state() {
    let (program, step) = (model("ema_constant"), step(&model("ema_constant")).expect("a step"));
    let (_, mut all) = prepared(&program, &sizes(1), 3);
    all.remove("y0");
    let whole = run(&program.instantiate(Elem::F32), &all, &sizes(1), MODE);
    let x = all["x"].clone();
    all.insert("x".into(), Array::floats(&x.sizes[..1], floats(&x)));
    let one = run(&step.program.instantiate(Elem::F32), &all, &[], MODE);
    assert_eq!(floats(&one["y"]), floats(&whole["y"]));
    assert_eq!(one["y_last"], whole["y_last"]);
}
