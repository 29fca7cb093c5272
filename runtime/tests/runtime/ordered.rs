//! The law of chunks and steps on the CPU: whole = chunks threaded through the state = single steps.
//!
//! In order, outputs, states and the gradients of all that has a time are equal bits wherever the whole is cut; otherwise
//! they agree to rounding, and to the bit at every 16,384th time. To rounding agree the gradients of what all times share,
//! which are sums over time, and those of calls in bf16, which read rounded outputs where a chunk has its first state.

use half::bf16;
use oplus::{Call, Elem, Kernel, Tensor, ordered};
use oplus_dsl::ir::Program;
use oplus_dsl::rng::Rng;
use oplus_dsl::step::{Step, step};
use oplus_dsl::testing::Part;

use crate::common::{Named, named, random_inputs};

/// Sizes of all axes but T.
const SIZES: [(&str, usize); 8] = [("B", 2), ("G", 2), ("D", 3), ("N", 5), ("H", 2), ("K", 2), ("V", 3), ("P", 2)];

/// A model and its one-step form.
struct Model {
    whole: Kernel,
    one: Kernel,
    step: Step,
}

fn kernel(program: &Program) -> Kernel {
    Kernel::new(program.name.clone().leak(), program.to_string().leak())
}

/// The models that have a step, and a scan behind a convolution by shifts.
fn models() -> Vec<Model> {
    let with_step = |program: Program| {
        let step = step(&program).ok()?;
        Some(Model { whole: kernel(&program), one: kernel(&step.program), step })
    };
    let text = include_str!("../../../dsl/front/tests/models/convolved_scan.txt").parse().unwrap();
    let convolved = oplus_front::programs(text).unwrap().swap_remove(0);
    let models: Vec<Model> =
        oplus_front::model_programs().into_iter().chain([convolved]).filter_map(with_step).collect();
    assert!(models.iter().any(|model| model.whole.name() == "convolved_scan"));
    models
}

/// The results that have to be equal to the bit.
#[derive(Clone, Copy, PartialEq)]
enum Exact {
    Nothing,
    Outputs,
    /// Outputs and gradients.
    Gradients,
}

/// A call of a part, by the names of its inputs and outputs.
struct Run {
    part: Part,
    call: Call,
    outputs: Named,
}

impl Model {
    fn program(&self) -> &Program {
        self.whole.program().unwrap()
    }

    fn kernel(&self, part: Part) -> &Kernel {
        if part.is_step() { &self.one } else { &self.whole }
    }

    /// Where the time stands among the axes of a tensor.
    fn time_of(&self, name: &str) -> Option<usize> {
        let program = self.program();
        let params = program.params.iter().map(|p| (&p.name, &p.axes));
        let mut all = params.chain(program.outputs.iter().map(|o| (&o.name, &o.axes)));
        let axes = all.find(|(known, _)| *known == name)?.1;
        axes.iter().position(|axis| program.axis_name(*axis) == self.step.axis)
    }

    fn is_state(&self, param: &str) -> bool {
        self.step.states.iter().any(|state| state.param == param)
    }

    /// The times of a tensor that belong to a part which begins at `from`; a step's have no time.
    fn cut(&self, name: &str, tensor: &Tensor, from: usize, part: Part) -> Tensor {
        let Some(at) = self.time_of(name) else { return tensor.clone() };
        let cut = tensor.slice(at, from..from + part.times()).unwrap();
        let mut shape = cut.shape().to_vec();
        if part.is_step() {
            shape.remove(at);
        }
        stored(numbers(&cut), &shape, cut.elem())
    }

    fn run(&self, part: Part, inputs: Named) -> Run {
        let program = self.kernel(part).program().unwrap();
        let (outputs, call) = self.kernel(part).call(&named(program, &inputs)).unwrap();
        let outputs = program.outputs.iter().zip(outputs).map(|(o, tensor)| (o.name.clone(), tensor)).collect();
        Run { part, call, outputs }
    }

    /// Runs the parts of a sequence, each from the state that the one before left.
    fn runs(&self, inputs: &Named, parts: &[Part]) -> Vec<Run> {
        let (mut runs, mut from): (Vec<Run>, usize) = (vec![], 0);
        for part in parts {
            let mut own: Named =
                inputs.iter().map(|(name, x)| (name.clone(), self.cut(name, x, from, *part))).collect();
            if let Some(before) = runs.last() {
                own.extend(self.step.states.iter().map(|s| (s.param.clone(), before.outputs[&s.output].clone())));
            }
            runs.push(self.run(*part, own));
            from += part.times();
        }
        runs
    }

    fn gradient(&self, run: &Run, bars: &Named) -> Named {
        let (kernel, program) = (self.kernel(run.part), self.program());
        let bars: Vec<_> = program.outputs.iter().map(|output| bars.get(&output.name)).collect();
        let all = kernel.backward(&run.call, &bars).unwrap();
        let floats = program.params.iter().filter(|p| p.elem.is_float());
        floats.zip(all).filter_map(|(p, bar)| Some((p.name.clone(), bar?))).collect()
    }

    /// The gradients of every part, from the last to the first: what a state's cotangent is, the next part asks for.
    fn gradients(&self, runs: &[Run], bars: &Named) -> Vec<Named> {
        let mut all: Vec<Named> = vec![];
        let mut from: usize = runs.iter().map(|run| run.part.times()).sum();
        for run in runs.iter().rev() {
            from -= run.part.times();
            let mut own: Named =
                bars.iter().map(|(name, bar)| (name.clone(), self.cut(name, bar, from, run.part))).collect();
            if let Some(next) = all.first() {
                own.extend(self.step.states.iter().map(|s| (s.output.clone(), next[&s.param].clone())));
            }
            all.insert(0, self.gradient(run, &own));
        }
        all
    }

    /// A tensor of the whole, made of the tensors of parts: put together along time, or the last one's.
    fn whole_of(&self, name: &str, parts: &[(Part, &Tensor)]) -> Vec<f32> {
        let Some(at) = self.time_of(name) else { return numbers(parts[parts.len() - 1].1) };
        let with_time = |(part, tensor): &(Part, &Tensor)| {
            let mut shape = tensor.shape().to_vec();
            if part.is_step() {
                shape.insert(at, 1);
            }
            (shape, numbers(tensor))
        };
        let parts: Vec<(Vec<usize>, Vec<f32>)> = parts.iter().map(with_time).collect();
        let outer: usize = parts[0].0[..at].iter().product();
        let row = |(shape, all): &(Vec<usize>, Vec<f32>), o: usize| {
            let n: usize = shape[at..].iter().product();
            all[o * n..(o + 1) * n].to_vec()
        };
        (0..outer).flat_map(|o| parts.iter().flat_map(move |part| row(part, o))).collect()
    }

    /// Random inputs, under which no state grows without bound; floats that take the element type of the call have this one.
    fn inputs(&self, times: usize, elem: Elem) -> Named {
        let sizes = [&SIZES[..], &[("T", times)]].concat();
        let program = self.program();
        let inputs = random_inputs(program, &sizes, &mut Rng::new(times as u64));
        let of = |name: &String| program.params.iter().find(|p| p.name == *name).unwrap().elem.in_call(elem);
        let finite = |name: &str, all: Vec<f32>| match name {
            // Keys and vectors of matrices that are long would make states grow.
            "k" | "a" | "b" if program.has_matrix_scans() => all.into_iter().map(|x| 0.5 * x).collect(),
            "w" if program.has_matrix_scans() => all.into_iter().map(|w| -w.abs()).collect(),
            "beta" => all.into_iter().map(f32::abs).collect(),
            "a" | "a_re" | "g" => all.into_iter().map(|a| -a.abs()).collect(),
            "delta" | "delta_bias" | "dt" | "dt_bias" => all.into_iter().map(f32::abs).collect(),
            "dt_min" => all.into_iter().map(|limit| 0.1 * limit.abs()).collect(),
            "dt_max" => all.into_iter().map(|limit| 1.0 + limit.abs()).collect(),
            _ => all,
        };
        let stored = |(name, x): (&String, &Tensor)| stored(finite(name, numbers(x)), x.shape(), of(name));
        inputs.iter().map(|(name, x)| (name.clone(), stored((name, x)))).collect()
    }

    /// The law for outputs and one way of cutting; gives the runs of the whole and of its parts.
    fn check_outputs(&self, elem: Elem, exact: Exact, parts: &[Part]) -> (Run, Vec<Run>) {
        let bound = if elem == Elem::Bf16 { 3e-2 } else { 1e-4 };
        let inputs = self.inputs(parts.iter().map(|part| part.times()).sum(), elem);
        let whole = self.run(Part::Chunk(parts.iter().map(|part| part.times()).sum()), inputs.clone());
        let runs = self.runs(&inputs, parts);
        let what = |name: &str| format!("{}, {name} for {parts:?} in {elem}", self.whole.name());
        for (name, expected) in &whole.outputs {
            let found: Vec<(Part, &Tensor)> = runs.iter().map(|run| (run.part, &run.outputs[name])).collect();
            let (found, expected, what) = (self.whole_of(name, &found), numbers(expected), what(name));
            match exact {
                Exact::Nothing => assert_close(&what, &found, &expected, bound),
                Exact::Outputs | Exact::Gradients => assert!(bits(&found) == bits(&expected), "{what}"),
            }
        }
        (whole, runs)
    }

    /// The law for one way of cutting: to the bit for what is `exact`, within rounding for the rest.
    fn check(&self, elem: Elem, exact: Exact, parts: &[Part]) {
        let bound = if elem == Elem::Bf16 { 3e-2 } else { 1e-4 };
        let what = |name: &str| format!("{}, {name} for {parts:?} in {elem}", self.whole.name());
        let (whole, runs) = self.check_outputs(elem, exact, parts);
        let ramp = |x: &Tensor| (0..x.len()).map(|k| (k as f32 * 0.7).sin()).collect();
        let bar = |(name, x): (&String, &Tensor)| (name.clone(), stored(ramp(x), x.shape(), x.elem()));
        let bars: Named = whole.outputs.iter().map(bar).collect();
        let own = self.gradients(&runs, &bars);
        for (name, expected) in self.gradient(&whole, &bars) {
            let found: Vec<(Part, &Tensor)> = runs.iter().zip(&own).map(|(run, all)| (run.part, &all[&name])).collect();
            let what = what(&format!("the gradient of {name}"));
            let (expected, is_shared) = (numbers(&expected), self.time_of(&name).is_none() && !self.is_state(&name));
            let found = match (is_shared, self.is_state(&name)) {
                (true, _) => sums(&found),
                (_, true) => numbers(found[0].1),
                _ => self.whole_of(&name, &found),
            };
            match exact == Exact::Gradients && !is_shared {
                true => assert_eq!(bits(&found), bits(&expected), "{what}"),
                false => assert_close(&what, &found, &expected, bound),
            }
        }
    }
}

fn bits(all: &[f32]) -> Vec<u32> {
    all.iter().map(|x| x.to_bits()).collect()
}

/// The sums of the parts' tensors, element by element.
fn sums(parts: &[(Part, &Tensor)]) -> Vec<f32> {
    let mut all = parts.iter().map(|(_, tensor)| numbers(tensor));
    let first = all.next().unwrap();
    all.fold(first, |sum, x| sum.iter().zip(x).map(|(sum, x)| sum + x).collect())
}

fn assert_close(what: &str, found: &[f32], expected: &[f32], bound: f32) {
    let largest = expected.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    for (k, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= bound * largest, "{what}, element {k}: {x} instead of {y}");
    }
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    match tensor.elem() {
        Elem::Bf16 => tensor.to_vec::<bf16>().unwrap().into_iter().map(f32::from).collect(),
        _ => tensor.to_vec::<f32>().unwrap(),
    }
}

fn stored(numbers: Vec<f32>, shape: &[usize], elem: Elem) -> Tensor {
    match elem {
        Elem::Bf16 => Tensor::from_vec(numbers.into_iter().map(bf16::from_f32).collect(), shape).unwrap(),
        _ => Tensor::from_vec(numbers, shape).unwrap(),
    }
}

#[test]
fn in_order_steps_and_chunks_are_the_whole_to_the_bit() {
    use Part::{Chunk, Step};
    let _order = ordered();
    let cuts: [&[Part]; 4] = [
        &[Step; 9],
        &[Chunk(1), Chunk(0), Chunk(5), Chunk(3)],
        &[Chunk(130), Step, Step, Chunk(69)],
        &[Chunk(64), Chunk(64), Chunk(3), Step],
    ];
    for model in models() {
        for cut in cuts {
            // The gradient of one step of a matrix product is that of its sums, written out, which add in another order.
            let has_steps = cut.iter().any(|part| part.is_step()) && model.program().has_matrix_scans();
            model.check(Elem::F32, if has_steps { Exact::Outputs } else { Exact::Gradients }, cut);
        }
        model.check(Elem::Bf16, Exact::Outputs, cuts[2]);
    }
}

#[test]
fn chunks_without_order_are_the_whole_within_rounding() {
    for model in models() {
        for cut in [&[64, 64][..], &[128, 64, 192], &[64, 64, 64, 17], &[1, 30, 5]] {
            let parts: Vec<Part> = cut.iter().map(|times| Part::Chunk(*times)).collect();
            model.check(Elem::F32, Exact::Nothing, &parts);
        }
    }
}

/// Where the CPU's tiles begin chunks have the bits of the whole, although it combines in any order.
#[test]
fn chunks_at_borders_are_the_whole_to_the_bit() {
    for model in models() {
        for parts in [&[16_384, 37][..], &[16_384, 32_768, 16_384]] {
            let parts: Vec<Part> = parts.iter().map(|times| Part::Chunk(*times)).collect();
            // Gradients of complex decays that vary along time agree to rounding: their fields depend on each other, and a chunk
            // adds the cotangent that it is given first.
            let is_coupled = model.whole.name().starts_with("selective_scan_complex");
            let exact = if is_coupled { Exact::Outputs } else { Exact::Gradients };
            model.check(Elem::F32, exact, &parts);
        }
    }
}

#[test]
fn order_reaches_long_rows_and_sums() {
    let (x, alpha) = (Tensor::from_vec((0..200_000).map(|t| (t as f32).sin()).collect(), &[1, 200_000]), 0.1_f32);
    let (x, alpha) = (x.unwrap(), Tensor::from_slice(&[alpha], &[1]).unwrap());
    let ema = oplus::models::ema_constant::kernel();
    let _order = ordered();
    let (outputs, _) = ema.call(&[Some(&x), Some(&alpha), None]).unwrap();
    let (mut y, mut all) = (0.0f32, vec![]);
    for x in numbers(&x) {
        y = (1.0 - 0.1f32) * y + 0.1f32 * x;
        all.push(y);
    }
    assert_eq!(bits(&numbers(&outputs[0])), bits(&all));
}
