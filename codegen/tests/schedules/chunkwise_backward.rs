//! Gradients of recurrences of matrices, in chunks.

mod channels;
mod one_head;
mod portable;
mod single;

use oplus_codegen::plan::{Launch, Plan, Planner};
use oplus_codegen::schedules::{ChunkwiseBackward, Schedule, Sweep};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar::round;
use oplus_dsl::specialize::{keep_outputs, without_param};
use oplus_dsl::testing::relative_error;

use crate::device::{Placement, Setting, Work, call, run};

/// A device with the shared memory of Hopper's, but neither copy engines nor warpgroups as its kernels know them.
const PORTABLE: Target = Target { isa: Isa::Sm80, ..Target::H200 };

/// The gradient of a standard model in `bf16`, without some of its optional parameters, with these outputs.
fn gradient(name: &str, without: &[&str], outputs: &[&str]) -> Program {
    gradient_of((name, Elem::Bf16), without, outputs)
}

fn gradient_of((name, elem): (&str, Elem), without: &[&str], outputs: &[&str]) -> Program {
    let models = oplus_front::model_programs();
    let program = models.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem);
    let program = without.iter().fold(program, |program, param| without_param(&program, param));
    adjoint(&keep_outputs(&program, outputs)).expect("differentiable")
}

/// Numbers that a parameter may have: decays and step sizes are such that states do not grow.
fn number(param: &Param, rng: &mut Rng) -> f64 {
    let (low, high) = match param.name.as_str() {
        "a" | "g" => (-1.0, 0.0),
        "dt" | "dt_bias" => (0.1, 1.0),
        _ => (-1.0, 1.0),
    };
    round(param.elem, rng.between(low, high))
}

/// Where packed sequences begin and end, from 0 to the number of times.
fn offsets(count: usize, times: usize, rng: &mut Rng) -> Vec<i64> {
    let inner = (2..count).map(|_| rng.between(0.0, times as f64) as i64);
    let mut all: Vec<i64> = [0, times as i64].into_iter().chain(inner).collect();
    all.sort_unstable();
    all
}

fn inputs(program: &Program, sizes: &[usize]) -> Vec<Array> {
    let mut rng = Rng::new(7);
    let time = program.axes.iter().position(|name| name == "T").expect("a time");
    let mut array = |param: &Param| {
        let own: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
        let len = own.iter().product::<usize>();
        let data = match param.elem {
            Elem::I32 => Data::Int(offsets(len, sizes[time], &mut rng)),
            _ => Data::Float((0..len).map(|_| number(param, &mut rng)).collect()),
        };
        Array { sizes: own, data }
    };
    program.params.iter().map(&mut array).collect()
}

/// The largest root mean square error of an output, relative to its own, where factors are of the program's narrowest type, or those of `f32`
/// were divided in two parts. The cotangents of decays are running sums, and sums of these over time: of what is left of their terms.
fn most(program: &Program, output: &str, is_rounded: bool) -> f64 {
    let has = |elem| program.params.iter().any(|param| param.elem == elem);
    let is_of_decays = ["a.bar", "g.bar", "dt.bar", "dt_bias.bar"].contains(&output);
    match (has(Elem::Bf16), has(Elem::F16)) {
        (true, _) => 5e-3,
        // Of decays the terms cancel: three times what is left of others.
        (_, true) if is_of_decays => 2e-3,
        (_, true) => 7e-4,
        // Factors in two parts of `bf16`.
        _ if is_rounded && is_of_decays => 6e-5,
        _ if is_rounded => 2e-5,
        _ if is_of_decays => 2e-5,
        _ => 1e-6,
    }
}

/// The plans by chunks for both instruction sets give what the program means, with a [root mean square error](most) as small as
/// its types let it be. The sweeps.
fn check(program: &Program, sizes: &[(&str, usize)], placed: (Placement, usize), order: Order) -> Vec<Sweep> {
    check_with(program, sizes, placed, order, |_, _, own| own)
}

/// Checks both plans as [`check`] does, on inputs that `change` gives from a parameter's name, an element's index and the random
/// number that would stand there.
fn check_with(
    program: &Program,
    sizes: &[(&str, usize)],
    placed: (Placement, usize),
    order: Order,
    change: impl Fn(&str, usize, f64) -> f64,
) -> Vec<Sweep> {
    let [own, portable] = [Target::H200, PORTABLE].map(|target| {
        let launches = check_on(&target, (program, sizes), placed, order, &change);
        launches.into_iter().map(|schedule| schedule.sweep).collect::<Vec<_>>()
    });
    assert_eq!(own, portable);
    own
}

/// What the plan by chunks for one target gives, and what the program means.
struct Results {
    sweeps: Vec<ChunkwiseBackward>,
    wanted: Vec<Array>,
    found: Vec<Array>,
}

/// The plan by chunks for one target gives what the program means, within the same bounds; gives the schedules of its sweeps.
fn check_on(
    target: &Target,
    (program, sizes): (&Program, &[(&str, usize)]),
    placed: (Placement, usize),
    order: Order,
    change: impl Fn(&str, usize, f64) -> f64,
) -> Vec<ChunkwiseBackward> {
    results(target, (program, sizes), placed, order, change).check(program, &format!("{sizes:?} {placed:?} {target:?}"))
}

impl Results {
    /// Compares both, within the same bounds; gives the schedules of the sweeps.
    fn check(self, program: &Program, what: &str) -> Vec<ChunkwiseBackward> {
        let is_rounded = self.sweeps.iter().any(|sweep| sweep.copiers > 0);
        for ((wanted, found), output) in self.wanted.iter().zip(&self.found).zip(&program.outputs) {
            let error = relative_error(wanted, found);
            let name = &output.name;
            assert!(
                error <= most(program, name, is_rounded),
                "`{name}` of {}: {what}: relative error {error}",
                program.name
            );
        }
        self.sweeps
    }
}

/// Plans of one call that are looked through.
const MOST_PLANS: usize = 160;

/// Runs the plan of a number among those by chunks for one target, and the interpreter.
fn results(
    target: &Target,
    (program, sizes): (&Program, &[(&str, usize)]),
    (placement, rank): (Placement, usize),
    order: Order,
    change: impl Fn(&str, usize, f64) -> f64,
) -> Results {
    let sizes = sizes_of(program, sizes);
    let planner = Planner::new(program, target).expect("cuts");
    let call = call(program, &sizes, placement);
    // Few states may be faster state by state, and decays of channels in chunks of 16 times.
    let takes_chunks = |plan: &Plan| plan.steps.iter().any(|step| step.schedule.name() == "chunkwise_backward");
    let plan = |rank| planner.plan_of(CutKind::MatrixBackward, &call, rank).expect("plans").filter(takes_chunks);
    let plan = (0..MOST_PLANS).filter_map(plan).nth(rank).expect("takes chunks");
    results_of(plan, target, (program, &sizes), (placement, order), change)
}

/// The sizes of all axes: 1 where none is given.
fn sizes_of(program: &Program, sizes: &[(&str, usize)]) -> Vec<usize> {
    let size = |name: &String| sizes.iter().find(|(known, _)| known == name).map_or(1, |(_, n)| *n);
    program.axes.iter().map(size).collect()
}

/// Runs a plan by chunks, and the interpreter.
fn results_of(
    plan: Plan,
    target: &Target,
    (program, sizes): (&Program, &[usize]),
    (placement, order): (Placement, Order),
    change: impl Fn(&str, usize, f64) -> f64,
) -> Results {
    let sweep = |step: &Launch| match step.schedule {
        Schedule::ChunkwiseBackward(s) => Some(s),
        _ => None,
    };
    let sweeps: Vec<ChunkwiseBackward> = plan.steps.iter().filter_map(sweep).collect();
    assert_eq!(sweeps.last().map(|s| s.sweep), Some(Sweep::Gradients), "{sizes:?} {placement:?}");
    let mut inputs = inputs(program, sizes);
    for (param, array) in program.params.iter().zip(&mut inputs) {
        if let Data::Float(all) = &mut array.data {
            all.iter_mut().enumerate().for_each(|(i, x)| *x = round(param.elem, change(&param.name, i, *x)));
        }
    }
    let given: Vec<Option<Array>> = inputs.iter().cloned().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes.iter().copied()).collect();
    let wanted = interpret_sized(program, &given, &named, Mode::default()).expect("runs");
    let work = Work::of(plan);
    let found = run(program, &work, &inputs, sizes, Setting { placement, order, isa: target.isa });
    Results { sweeps, wanted, found }
}

#[test]
fn lengths_around_chunks() {
    let program = gradient("ssd", &["skip", "dt_bias", "h0"], &["y"]);
    for (t, heads) in [(1, 1), (2, 3), (63, 2), (64, 2), (65, 1), (130, 2)] {
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", heads), ("P", 64), ("N", 32)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
    }
}

#[test]
fn groups_states_and_odd_sizes() {
    for name in ["ssd", "ssd_softplus"] {
        let program = gradient(name, &[], &["y", "h_last"]);
        let sizes = [("B", 2), ("T", 70), ("G", 2), ("H", 3), ("P", 29), ("N", 13)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
        let sizes = [("B", 1), ("T", 129), ("G", 2), ("H", 1), ("P", 56), ("N", 72)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Ascending);
    }
}

#[test]
fn monoid_attention() {
    // The cotangent of an initial state where nothing reads the final one, and where something does.
    for (outputs, t) in [(&["o"][..], 70), (&["o", "s_last"], 129)] {
        let program = gradient("monoid_attention", &["g0"], outputs);
        let sizes = [("B", 1), ("H", 2), ("T", t), ("K", 29), ("V", 56)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
    }
}

#[test]
fn decays_that_are_the_same_at_all_times() {
    for name in ["retention", "linear_attention"] {
        for (without, outputs, t) in [(&["s0"][..], &["o"][..], 70), (&[], &["o", "s_last"], 129), (&[], &["o"], 64)] {
            let program = gradient(name, without, outputs);
            let sizes = [("B", 2), ("H", 2), ("T", t), ("K", 29), ("V", 56)];
            check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
        }
        let program = gradient(name, &[], &["o", "s_last"]);
        let sizes = [("B", 1), ("H", 1), ("T", 1030), ("K", 16), ("V", 24)];
        let sweeps = check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
        assert!(sweeps.contains(&Sweep::StateEnds) && sweeps.contains(&Sweep::CotangentEnds));
    }
}

#[test]
fn parts_of_wide_states() {
    for (without, outputs, heads, p) in
        [(&["skip", "dt_bias", "h0"][..], &["y"][..], 3, 128), (&[], &["y", "h_last"], 1, 192)]
    {
        let program = gradient("ssd_softplus", without, outputs);
        let sizes = [("B", 2), ("T", 70), ("G", 2), ("H", heads), ("P", p), ("N", 32)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(p as u64));
    }
    for (outputs, t) in [(&["o"][..], 129), (&["o", "s_last"], 1030)] {
        let program = gradient("retention", &[], outputs);
        let sizes = [("B", 2), ("H", 3), ("T", t), ("K", 32), ("V", 128)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
    }
}

#[test]
fn widths_that_end_in_the_middle_of_a_part() {
    for (name, elem, width, depth) in [
        ("ssd_softplus", Elem::Bf16, 80, 32),
        ("ssd", Elem::F32, 65, 13),
        ("linear_attention", Elem::Bf16, 65, 64),
        ("retention", Elem::Bf16, 136, 24),
        ("gated_linear_attention", Elem::Bf16, 67, 29),
        ("ssd", Elem::F16, 72, 16),
        // Whole parts of a shorter depth.
        ("ssd", Elem::Bf16, 128, 24),
    ] {
        let outputs: &[&str] =
            if ["ssd", "ssd_softplus", "mamba2"].contains(&name) { &["y", "h_last"] } else { &["o", "s_last"] };
        let program = gradient_of((name, elem), &[], outputs);
        let sizes = [("B", 2), ("T", 70), ("G", 2), ("H", 3), ("P", width), ("V", width), ("N", depth), ("K", depth)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(width as u64));
    }
}

/// Three warpgroups multiply in the third sweep where a block goes through several heads or slices of the width, in any order of events.
#[test]
fn third_sweeps_by_warpgroups() {
    // Two batches of two groups tell the axes of a block's place apart.
    for (name, elem, several, heads, p, n, t) in [
        ("ssd", Elem::Bf16, 1, 8, 64, 128, 65),
        ("ssd_softplus", Elem::Bf16, 2, 3, 56, 64, 70),
        ("mamba2", Elem::Bf16, 1, 5, 64, 32, 64),
        ("ssd_packed", Elem::Bf16, 1, 6, 64, 64, 200),
        ("ssd", Elem::F16, 1, 4, 128, 128, 63),
        ("mamba2", Elem::F16, 2, 2, 80, 64, 65),
        ("ssd", Elem::F32, 1, 5, 64, 128, 65),
        ("ssd_softplus", Elem::F32, 2, 3, 56, 64, 70),
        ("mamba2", Elem::F32, 2, 2, 80, 32, 64),
        ("ssd_packed", Elem::F32, 1, 6, 128, 128, 63),
    ] {
        let program = gradient_of((name, elem), &[], &["y"]);
        let sizes = [("B", several), ("T", t), ("G", several), ("H", heads), ("P", p), ("N", n), ("S", 4)];
        for order in [Order::Ascending, Order::Descending, Order::Random(t as u64)] {
            let sweeps =
                check_on(&Target::H200, (&program, &sizes), (Placement::Contiguous, 0), order, |_, _, own| own);
            assert!(sweeps.last().is_some_and(|sweep| sweep.warpgroups), "{name} {elem} {sizes:?}");
        }
    }
    for (name, elem, k, v) in [
        ("retention", Elem::Bf16, 64, 256),
        ("linear_attention", Elem::Bf16, 128, 128),
        ("retention", Elem::F16, 128, 128),
        ("linear_attention", Elem::F16, 64, 192),
        ("linear_attention", Elem::F16, 96, 104),
        ("linear_attention", Elem::F16, 128, 128),
    ] {
        let program = gradient_of((name, elem), &["s0"], &["o"]);
        let sizes = [("B", 1), ("H", 2), ("T", 100), ("K", k), ("V", v)];
        let sweeps =
            check_on(&Target::H200, (&program, &sizes), (Placement::Contiguous, 0), Order::Random(3), |_, _, own| own);
        assert!(sweeps.last().is_some_and(|sweep| sweep.warpgroups), "{name}");
    }
    // A single head leaves nothing to overlap.
    let program = gradient("ssd", &["skip"], &["y"]);
    let sizes = [("B", 1), ("T", 70), ("G", 2), ("H", 1), ("P", 64), ("N", 64)];
    let sweeps =
        check_on(&Target::H200, (&program, &sizes), (Placement::Contiguous, 0), Order::Ascending, |_, _, own| own);
    assert!(!sweeps.iter().any(|sweep| sweep.warpgroups));
}

/// Slices of the greatest depth in `f32`, the last of which may be shorter: strides and places are read from shared memory again.
#[test]
fn third_sweeps_of_deepest_slices_in_f32() {
    for (name, p) in [("ssd_softplus", 72), ("ssd_softplus", 128)] {
        let program = gradient_of((name, Elem::F32), &[], &["y"]);
        let sizes = [("B", 2), ("T", 65), ("G", 2), ("H", 2), ("P", p), ("N", 128)];
        let sweeps =
            check_on(&Target::H200, (&program, &sizes), (Placement::Padded, 0), Order::Random(7), |_, _, own| own);
        assert!(sweeps.last().is_some_and(|sweep| sweep.warpgroups), "{name} {p}");
    }
}

/// Warpgroups walk beside warps that only copy.
#[test]
fn walks_of_f16_by_warpgroups() {
    let program = gradient_of(("ssd", Elem::F16), &["skip"], &["y", "h_last"]);
    for (t, p, n) in [(1, 64, 32), (129, 64, 64), (70, 80, 24), (65, 64, 128)] {
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 8), ("P", p), ("N", n)];
        let (placed, order) = ((Placement::Contiguous, 0), Order::Random(t as u64));
        let sweeps = check_on(&Target::H200, (&program, &sizes), placed, order, |_, _, own| own);
        assert!(sweeps.iter().all(|sweep| sweep.copiers > 0), "{sizes:?}");
    }
}

/// Products that `f16` has no room for, and factors that are small, in walks and third sweeps by warpgroups: each number that is computed leaves its range on
/// one side or the other in one of these calls.
#[test]
fn numbers_out_of_the_range_of_f16() {
    let program = gradient_of(("ssd", Elem::F16), &["skip", "dt_bias", "h0"], &["y"]);
    for (case, (factors, t, n)) in [
        // Values near the largest; states; weights.
        ([("x", 6e4), ("b", 1.0), ("c", 1.0), ("y.bar", 1e-3)], 130, 64),
        ([("x", 3e4), ("b", 1e3), ("c", 1.0), ("y.bar", 1e-5)], 65, 128),
        ([("x", 1.0), ("b", 1e3), ("c", 1e3), ("y.bar", 1e-3)], 129, 32),
        // E; cotangents of states.
        ([("x", 1e2), ("b", 1e-3), ("c", 1e-2), ("y.bar", 1e3)], 64, 64),
        ([("x", 1e-3), ("b", 5e-3), ("c", 1e3), ("y.bar", 1e2)], 67, 32),
        // Small states; small weights and cotangents of states; small values.
        ([("x", 1e-2), ("b", 1e-2), ("c", 1e3), ("y.bar", 1.0)], 130, 64),
        ([("x", 1e3), ("b", 1e-2), ("c", 1e-2), ("y.bar", 1.0)], 65, 128),
        ([("x", 1e-3), ("b", 10.0), ("c", 10.0), ("y.bar", 1.0)], 193, 32),
    ]
    .into_iter()
    .enumerate()
    {
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 3), ("P", 64), ("N", n)];
        let scaled = |name: &str, _: usize, own: f64| {
            own * factors.iter().find(|(known, _)| *known == name).map_or(1.0, |(_, factor)| *factor)
        };
        let order = [Order::Ascending, Order::Descending, Order::Random(case as u64)][case % 3];
        let sweeps = check_on(&Target::H200, (&program, &sizes), (Placement::Contiguous, 0), order, scaled);
        assert!(sweeps.iter().all(|sweep| sweep.copiers > 0), "{factors:?}");
        assert!(sweeps.last().is_some_and(|sweep| sweep.warpgroups), "{factors:?}");
    }
}

/// An infinite cotangent of one place of the width makes a row of the cotangents of states infinite, and asks for no power of two: other places
/// keep their gradients.
#[test]
fn infinities_of_one_row_of_f16() {
    let program = gradient_of(("ssd", Elem::F16), &["skip", "dt_bias", "h0"], &["y"]);
    let (t, heads, width, place) = (130, 2, 64, 3);
    let sizes = [("B", 1), ("T", t), ("G", 1), ("H", heads), ("P", width), ("N", 64)];
    let last = ((t - 1) * heads) * width + place;
    let change = |name: &str, index: usize, own: f64| match name {
        "y.bar" if index == last => f64::INFINITY,
        _ => own,
    };
    let placed = (Placement::Contiguous, 0);
    let Results { sweeps, wanted, found } =
        results(&Target::H200, (&program, &sizes), placed, Order::Ascending, change);
    assert!(sweeps.last().is_some_and(|sweep| sweep.warpgroups));
    let output = program.outputs.iter().position(|output| output.name == "x.bar").expect("a gradient of x");
    // The chunks before the one of the infinity.
    let early = |array: &Array| -> Vec<f64> {
        let all = array.as_floats().expect("floats");
        let before = &all[..128 * heads * width];
        before.iter().enumerate().filter(|(k, _)| k % (heads * width) != place).map(|(_, x)| *x).collect()
    };
    let [wanted, found] = [&wanted, &found].map(|arrays| early(&arrays[output]));
    assert!(wanted.iter().all(|x| x.is_finite()));
    let square = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>();
    let error = square(&mut wanted.iter().zip(&found).map(|(x, y)| x - y)) / square(&mut wanted.iter().copied());
    assert!(error.sqrt() <= 7e-4, "relative error {}", error.sqrt());
}

/// The sums over heads of key' and E are multiplied by powers that heads of larger cotangents change, whether these come first or last.
#[test]
fn heads_of_f16_that_differ_in_size() {
    const HEADS: usize = 5;
    let program = gradient_of(("ssd", Elem::F16), &["skip", "dt_bias", "h0"], &["y"]);
    let sizes = [("B", 1), ("T", 130), ("G", 1), ("H", HEADS), ("P", 64), ("N", 64)];
    for powers in [[-6, -3, 0, 3, 6], [6, 3, 0, -3, -6], [0, 6, -6, 6, 0]] {
        let scaled = |name: &str, index: usize, own: f64| match name {
            "y.bar" => own * 2f64.powi(powers[index / 64 % HEADS]),
            _ => own,
        };
        let placed = (Placement::Contiguous, 0);
        let sweeps = check_on(&Target::H200, (&program, &sizes), placed, Order::Random(3), scaled);
        assert!(sweeps.last().is_some_and(|sweep| sweep.warpgroups), "{powers:?}");
    }
}

#[test]
fn sums_of_queries_that_have_no_registers() {
    let program = gradient("ssd", &["skip", "dt_bias", "h0"], &["y"]);
    for (p, n) in [(29, 101), (128, 128)] {
        let sizes = [("B", 1), ("T", 70), ("G", 1), ("H", 2), ("P", p), ("N", n)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(n as u64));
    }
}

#[test]
fn single_elements_of_most_depth() {
    let sizes = [("B", 1), ("T", 129), ("H", 2), ("K", 125), ("V", 61)];
    for (name, target) in [("retention", Target::H200), ("linear_attention", Target::H200), ("retention", PORTABLE)] {
        let program = gradient(name, &["s0"], &["o"]);
        let placed = (Placement::Contiguous, 0);
        let sweeps = check_on(&target, (&program, &sizes), placed, Order::Random(7), |_, _, own| own);
        assert!(sweeps.iter().all(|schedule| (schedule.depth, schedule.vector) == (128, 1)), "{name}");
    }
}

#[test]
fn gates() {
    let program = gradient("mamba2", &["skip", "dt_bias", "h0"], &["y"]);
    for (t, heads) in [(2, 3), (64, 2), (70, 1)] {
        let sizes = [("B", 1), ("T", t), ("G", 2), ("H", heads), ("P", 56), ("N", 32)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
    }
    let program = gradient("mamba2", &[], &["y", "h_last"]);
    let sizes = [("B", 2), ("T", 129), ("G", 2), ("H", 3), ("P", 29), ("N", 13)];
    check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
}

#[test]
fn packed_sequences() {
    let program = gradient("ssd_packed", &[], &["y"]);
    for (t, sequences) in [(1, 2), (70, 5), (200, 9)] {
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 29), ("N", 13), ("S", sequences)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
    }
    let program = gradient("monoid_attention_packed", &[], &["o"]);
    let sizes = [("B", 2), ("H", 1), ("T", 130), ("K", 32), ("V", 64), ("S", 6)];
    check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
}

#[test]
fn segments_of_few_long_recurrences() {
    for (without, outputs) in [(&["skip", "dt_bias", "h0"][..], &["y"][..]), (&[], &["y", "h_last"])] {
        let program = gradient("ssd", without, outputs);
        let sizes = [("B", 1), ("T", 1030), ("G", 1), ("H", 1), ("P", 24), ("N", 16)];
        let sweeps = check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(3));
        assert!(sweeps.contains(&Sweep::StateEnds) && sweeps.contains(&Sweep::CotangentEnds));
    }
}
