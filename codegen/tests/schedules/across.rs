//! The gradient of attention in one walk: sums over keys beside those over queries, which blocks add up in turns.

use oplus_codegen::plan::{Launch, Planner};
use oplus_codegen::schedules::flash::SumsOver;
use oplus_codegen::schedules::{Schedule, lower};
use oplus_codegen::simulate::{Buffer, Order};
use oplus_codegen::stage::{CutKind, Refusal};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Program};

use crate::device::{Placement, Region, Setting, Work, call, run, run_on_region};
use crate::flash::gradient_of_calls;
use crate::oracle::given;

/// A call of a gradient: queries, keys, and heads of keys and of queries for each.
struct Gradient {
    program: Program,
    sizes: Vec<usize>,
    inputs: Vec<Array>,
}

impl Gradient {
    fn new(name: &str, elem: Elem, [m, n, e]: [usize; 3], (heads, queries): (usize, usize)) -> Gradient {
        let program = gradient_of_calls(name, elem);
        let size = |axis: &String| match axis.as_str() {
            "M" => m,
            "N" => n,
            "E" | "F" => e,
            "G" => heads,
            "R" => queries,
            _ => 1,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        let mut inputs = given(&program, &sizes);
        for (param, input) in program.params.iter().zip(&mut inputs) {
            match (param.name.as_str(), &mut input.data) {
                // Logarithms of sums of about so many exponentials.
                ("lse", Data::Float(lse)) => lse.iter_mut().for_each(|x| *x = 2.0 + 0.1 * *x),
                ("left", Data::Int(far)) => far.fill(20),
                ("right", Data::Int(far)) => far.fill(5),
                _ => {}
            }
        }
        Gradient { program, sizes, inputs }
    }

    fn plan(&self, how: CutKind) -> Work {
        let planner = Planner::new(&self.program, &Target::H200).expect("cuts");
        let call = call(&self.program, &self.sizes, Placement::Contiguous);
        let plan = planner.plan_of(how, &call, 0).unwrap_or_else(|e| panic!("{}{e}", self.program));
        let plan = plan.expect("is cut so");
        Work::of(plan)
    }

    /// The outputs of two launches in the same region of messages, which must agree in every bit.
    fn found(&self, order: Order) -> Vec<Array> {
        let work = self.plan(CutKind::PairwiseAcross);
        let is_both = |launch: &Launch| matches!(launch.schedule, Schedule::Flash(own) if own.sums == SumsOver::Both);
        assert!(work.launches.iter().any(is_both), "{} launches", work.launches.len());
        let mut region = Region::new(work.message_words, 7);
        let mut run = || {
            let none = Buffer::unwritten(Elem::F32, 0);
            let how = Setting { placement: Placement::Contiguous, order, isa: Isa::Sm90a };
            let kernel = |launch: &Launch| lower(&launch.stage, &launch.schedule, Isa::Sm90a).expect("lowers");
            run_on_region(&self.program, &work, &self.inputs, &self.sizes, how, (none, &mut region), kernel).0
        };
        let (first, second) = (run(), run());
        same_bits(&first, &second);
        first
    }

    /// The outputs of a kernel for the sums over keys and one for those over queries.
    fn by_two(&self) -> Vec<Array> {
        let how = Setting { placement: Placement::Contiguous, order: Order::Ascending, isa: Isa::Sm90a };
        run(&self.program, &self.plan(CutKind::GroupedQuery), &self.inputs, &self.sizes, how)
    }

    fn wanted(&self) -> Vec<Array> {
        let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(self.sizes.iter().copied()).collect();
        let optional: Vec<Option<Array>> = self.inputs.iter().cloned().map(Some).collect();
        interpret_sized(&self.program, &optional, &named, Mode::default()).expect("runs")
    }

    /// In every order of events the bits are the same, and near to what the program means.
    fn check(&self) {
        let found = self.found(Order::Ascending);
        for order in [Order::Descending, Order::Random(self.sizes[3] as u64)] {
            same_bits(&found, &self.found(order));
        }
        for (wanted, (found, output)) in self.wanted().iter().zip(found.iter().zip(&self.program.outputs)) {
            let (wanted, found) = (floats(wanted), floats(found));
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let all = norm(&mut wanted.iter().copied());
            let off = norm(&mut wanted.iter().zip(found).map(|(a, b)| a - b));
            let allowed = if output.elem == Elem::Bf16 { 8e-3 } else { 1e-3 };
            assert!(off <= allowed * all + 1e-30, "`{}`: {off} of {all}, {:?}", output.name, self.sizes);
        }
    }

    /// Elements that a query does not see may be anything: outputs are finite just where those of two kernels are.
    fn check_non_finite(&self) {
        let found = self.found(Order::Random(3));
        for (wanted, (found, output)) in self.by_two().iter().zip(found.iter().zip(&self.program.outputs)) {
            for (i, (a, b)) in floats(wanted).iter().zip(floats(found)).enumerate() {
                assert_eq!(a.is_finite(), b.is_finite(), "`{}`[{i}] is {b}, not {a}: {:?}", output.name, self.sizes);
            }
        }
    }
}

fn floats(array: &Array) -> &[f64] {
    array.as_floats().expect("floats")
}

fn same_bits(one: &[Array], other: &[Array]) {
    for (one, other) in one.iter().zip(other) {
        let bits = |array: &Array| floats(array).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(one), bits(other));
    }
}

#[test]
fn every_number_of_queries_and_keys() {
    for (m, n) in [(1, 1), (127, 129), (128, 128), (129, 127), (1, 300), (300, 1), (260, 190)] {
        Gradient::new("attention", Elem::Bf16, [m, n, 64], (2, 1)).check();
    }
    for (m, n) in [(1, 1), (63, 127), (64, 128), (65, 129), (200, 260)] {
        Gradient::new("attention", Elem::F16, [m, n, 128], (1, 1)).check();
    }
}

#[test]
fn limited_keys() {
    for (m, n) in [(1, 1), (129, 129), (260, 130), (130, 260), (70, 300)] {
        Gradient::new("attention_causal", Elem::F16, [m, n, 64], (3, 1)).check();
        Gradient::new("attention_window", Elem::Bf16, [m, n, 64], (2, 1)).check();
    }
    Gradient::new("attention_causal", Elem::Bf16, [200, 260, 128], (2, 1)).check();
}

#[test]
fn grouped_queries() {
    Gradient::new("attention", Elem::F16, [130, 140, 64], (2, 3)).check();
    Gradient::new("attention_causal", Elem::F16, [150, 140, 64], (2, 2)).check();
}

#[test]
fn what_a_query_does_not_see_may_be_anything() {
    for name in ["attention_causal", "attention_window"] {
        let mut gradient = Gradient::new(name, Elem::F16, [140, 150, 64], (1, 1));
        for (param, input) in gradient.program.params.iter().zip(&mut gradient.inputs) {
            if let (["q" | "k" | "v" | "o.bar"], Data::Float(numbers)) = (&[param.name.as_str()][..], &mut input.data) {
                let last = numbers.len() - 70;
                numbers[last] = f64::INFINITY;
                numbers[last + 1] = f64::NAN;
            }
        }
        gradient.check_non_finite();
    }
}

#[test]
fn others_are_refused() {
    let refusal = |name: &str, elem: Elem| {
        let planner = Planner::new(&gradient_of_calls(name, elem), &Target::H200).expect("cuts");
        assert_eq!(planner.cut(CutKind::PairwiseAcross), None, "{name} in {elem}");
    };
    refusal("attention_packed", Elem::Bf16);
    refusal("attention", Elem::F32);
    assert!(Refusal::AcrossLimits.to_string().contains("distances"));
}

/// More tiles of keys than multiprocessors cannot wait for one another.
#[test]
fn too_many_keys_have_two_kernels() {
    let gradient = Gradient::new("attention", Elem::Bf16, [64, 64, 64], (1, 1));
    let planner = Planner::new(&gradient.program, &Target::H200).expect("cuts");
    let sizes: Vec<usize> = gradient
        .sizes
        .iter()
        .zip(&gradient.program.axes)
        .map(|(size, axis)| if axis == "N" { 133 * 128 } else { *size })
        .collect();
    let call = call(&gradient.program, &sizes, Placement::Contiguous);
    assert!(planner.plan_of(CutKind::PairwiseAcross, &call, 0).is_err());
    assert!(planner.plan(&call).is_ok());
}

/// One kernel is chosen where it was measured to be ahead: full and causal, heads of 64 and 128, long rows and short ones.
#[test]
fn measured_shapes_have_one_kernel() {
    for (name, batch, heads, length, places) in [
        ("attention", 2, 16, 8192, 128),
        ("attention_causal", 2, 16, 8192, 128),
        ("attention", 8, 32, 2048, 64),
        ("attention_causal", 8, 32, 2048, 64),
        ("attention_causal", 32, 16, 512, 128),
    ] {
        let program = gradient_of_calls(name, Elem::Bf16);
        let size = |axis: &String| match axis.as_str() {
            "B" => batch,
            "G" => heads,
            "R" => 1,
            "M" | "N" => length,
            _ => places,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        let call = call(&program, &sizes, Placement::Contiguous);
        let plan = Planner::new(&program, &Target::H200).expect("cuts").plan(&call).expect("plans");
        assert_eq!(plan.cut, CutKind::PairwiseAcross, "{name} {batch} × {heads} × {length} × {places}");
    }
}
