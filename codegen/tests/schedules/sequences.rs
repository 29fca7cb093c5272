//! Packed sequences that begin and end at states of their own, a block of chunks for each, against the interpreter.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{CutKind, CutRefusal, SequencesRefusal, cuts};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::testing::relative_error;

use crate::chunk_delta::{model_of, written_of};
use crate::device::{Placement, Setting, Work, call, run};
use crate::oracle::rounded;

/// Programs of packed sequences as users write them: decays of each kind, readouts that go on, and first or last states alone.
pub(crate) const WRITTEN: [&str; 7] = [
    "fn gated(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], z: [B, H, T, V], g: wide[B, H, T], beta: [B, H, T], cu: i64[S + 1],
        s0: wide[B, S, H, K, V],
    ) -> (y: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
        let s = scan(T, segmented(GatedDeltaRule)(g, beta, k, v), offsets = cu, init = s0);
        let o = sum(K, q * s);
        y = o * rsqrt(sum(V, o * o) / (size(V) as call) + 0.00001) * silu(z);
        s_last = last(T, s, offsets = cu);
    }",
    "fn channels(
        q: [B, T, H, K], k: [B, T, H, K], v: [B, T, H, V], g: wide[B, T, H, K], beta: [B, T, H], cu: i32[S + 1], s0: wide[S, H, K, V],
    ) -> (o: [B, T, H, V], s_last: wide[B, S, H, K, V]) {
        let s = scan(T, segmented(ChannelDeltaRule)(g, beta, k, v), offsets = cu, init = s0);
        o = sum(K, q * s);
        s_last = last(T, s, offsets = cu);
    }",
    "fn two_keys(
        q: [B, H, T, K], w: wide[B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [B, H, T, K], b: [B, H, T, K], cu: i32[S + 1],
        s0: wide[B, S, H, K, V],
    ) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
        let s = scan(T, segmented(DiagonalPlusPair)(exp(w), a, b, k * v), offsets = cu, init = s0);
        o = sum(K, q * s);
        s_last = last(T, s, offsets = cu);
    }",
    "fn begins(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: [B, H, T], cu: i32[S + 1], s0: [B, S, H, K, V],
    ) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(DeltaRule)(beta, k, v), offsets = cu, init = s0));
    }",
    "fn ends(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], cu: i32[S + 1],
    ) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
        let s = scan(T, segmented(LogDecay)(g, k * v), offsets = cu).x;
        o = sum(K, q * s);
        s_last = last(T, s, offsets = cu);
    }",
    "fn decayed(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], z: [B, H, T, V], g: wide[B, H, T], cu: i32[S + 1], s0: wide[B, S, H, K, V],
    ) -> (y: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
        let s = scan(T, segmented(LogDecay)(g, k * v), offsets = cu, init = s0).x;
        y = sum(K, q * s) * silu(z);
        s_last = last(T, s, offsets = cu);
    }",
    "fn last_only(
        k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], beta: wide[B, H, T], cu: i32[S + 1], s0: wide[B, S, H, K, V],
    ) -> (s_last: wide[B, S, H, K, V]) {
        s_last = last(T, scan(T, segmented(GatedDeltaRule)(0.1 * g, beta, k, v), offsets = cu, init = s0), offsets = cu);
    }",
];

/// The standard models of such sequences that are read by queries.
const MODELS: [&str; 4] = [
    "delta_rule_packed_states",
    "gated_linear_attention_packed_states",
    "monoid_attention_packed_states",
    "ssd_packed_states",
];

/// Lists of offsets: sequences of a chunk's times, of more and of fewer, of one time and of none, and times that no sequence has.
const OFFSETS: [&[i64]; 8] = [
    &[0, 64, 128, 193, 193, 194, 257],
    &[0, 0, 63, 64, 127],
    &[3, 20, 37, 54],
    &[0, 0, 0],
    &[0, 1],
    &[0, 131, 131],
    &[1, 2, 4, 19, 35, 52, 52],
    &[0, 63, 127, 192],
];

/// Times behind the last sequence.
const BEHIND: [usize; 8] = [0, 1, 5, 0, 0, 17, 64, 2];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) offsets: usize,
    /// Batches, heads, keys and values.
    pub(crate) sizes: [usize; 4],
    pub(crate) placement: Placement,
    pub(crate) order: Order,
}

impl Case {
    pub(crate) fn sizes(&self, program: &Program) -> Vec<usize> {
        let ([b, h, k, v], offsets) = (self.sizes, OFFSETS[self.offsets]);
        let size = |axis: &String| match axis.as_str() {
            "B" => b,
            "H" => h,
            "G" => 1,
            "T" => offsets[offsets.len() - 1] as usize + BEHIND[self.offsets],
            "K" | "N" => k,
            "S" => offsets.len() - 1,
            "S.ends" => offsets.len(),
            _ => v,
        };
        program.axes.iter().map(size).collect()
    }

    pub(crate) fn inputs(&self, program: &Program, sizes: &[usize]) -> Vec<Array> {
        let mut rng = Rng::new(17);
        let mut input = |param: &Param| {
            let own: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
            if param.name.starts_with("cu") {
                return Array { sizes: own, data: Data::Int(OFFSETS[self.offsets].to_vec()) };
            }
            let (low, high) = match param.name.as_str() {
                "beta" => (0.0, 1.0),
                "a" if program.name.starts_with("ssd") => (-1.0, -0.1),
                "g" | "w" => (-0.5, 0.0),
                _ => (-1.0, 1.0),
            };
            let mut data: Vec<f64> = (0..own.iter().product()).map(|_| rng.between(low, high)).collect();
            if matches!(param.name.as_str(), "k" | "a" | "b") && own.len() == 4 {
                for key in data.chunks_mut(own[3].max(1)) {
                    let length = key.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
                    let by = if param.name == "a" { 0.5 } else { 1.0 };
                    key.iter_mut().for_each(|x| *x *= by / length);
                }
            }
            data.iter_mut().for_each(|x| *x = rounded(*x, param.elem));
            Array { sizes: own, data: Data::Float(data) }
        };
        program.params.iter().map(&mut input).collect()
    }
}

fn is_chunked(schedule: &Schedule) -> bool {
    matches!(
        schedule,
        Schedule::ChunkDelta(_)
            | Schedule::Chunkwise(_)
            | Schedule::ChunkDeltaBackward(_)
            | Schedule::ChunkwiseBackward(_)
    )
}

/// A plan with a block of chunks for each sequence, of some rank among those.
fn plan(program: &Program, sizes: &[usize], placement: Placement, (rank, target): (usize, &Target)) -> Plan {
    let planner = Planner::new(program, target).expect("cuts");
    let plan = planner.plan_of(CutKind::Sequences, &call(program, sizes, placement), rank);
    let plan = plan.unwrap_or_else(|e| panic!("{}: {e}", program.name));
    let plan = plan.unwrap_or_else(|| panic!("{}: not cut into sequences", program.name));
    assert!(plan.steps.iter().any(|step| is_chunked(&step.schedule)), "{}", program.name);
    plan
}

fn check(program: &Program, case: Case) {
    check_ranked(program, case, 0);
}

fn check_ranked(program: &Program, case: Case, rank: usize) {
    check_on(program, case, rank, &Target::H200);
}

fn check_on(program: &Program, case: Case, rank: usize, target: &Target) {
    let sizes = case.sizes(program);
    let given = case.inputs(program, &sizes);
    let work = Work::of(plan(program, &sizes, case.placement, (rank, target)));
    let setting = Setting { placement: case.placement, order: case.order, isa: target.isa };
    let found = run(program, &work, &given, &sizes, setting);
    let optional: Vec<Option<Array>> = given.into_iter().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes).collect();
    let wanted = interpret_sized(program, &optional, &named, Mode::default()).expect("runs");
    let elem = program.params[0].elem;
    let most = if elem == Elem::F32 { 0.0001 } else { 0.005 };
    for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
        let error = relative_error(wanted, found);
        // A gradient that is one number for each head is a sum over all times, in which most cancels.
        let is_of_all = !output.axes.iter().any(|axis| ["T", "S"].contains(&program.axis_name(*axis)));
        let most = if is_of_all { 10.0 * most } else { most };
        assert!(error < most, "{} {elem} {case:?}: `{}` is off by {error}", program.name, output.name);
    }
}

fn all(elem: Elem) -> Vec<Program> {
    let models = MODELS.into_iter().map(|name| model_of(name, elem));
    models.chain(WRITTEN.into_iter().map(|text| written_of(text, elem))).collect()
}

/// Checks a program for sequences of several lengths, and for sizes and strides of several kinds.
fn check_shapes(program: &Program) {
    let case = |offsets, sizes, placement, order| check(program, Case { offsets, sizes, placement, order });
    case(0, [1, 2, 64, 64], Placement::Contiguous, Order::Random(1));
    case(1, [2, 1, 32, 64], Placement::Contiguous, Order::Descending);
    case(2, [1, 1, 24, 40], Placement::Padded, Order::Random(3));
    case(5, [1, 1, 21, 13], Placement::Strided, Order::Random(4));
}

#[test]
fn blocks_of_sequences_give_what_the_program_means() {
    for program in &all(Elem::Bf16) {
        check_shapes(program);
    }
}

#[test]
fn sequences_may_have_no_times_and_times_no_sequence() {
    for program in &all(Elem::Bf16) {
        // Without any time chunks of a scan have nothing to copy: another cut writes the last states. Without last states nothing is written.
        let is_taken = |offsets: &usize| *offsets != 3 || program.has_matrix_scans() && program.outputs.len() > 1;
        for offsets in [2, 3, 4].into_iter().filter(is_taken) {
            let (placement, order) = (Placement::Contiguous, Order::Ascending);
            check(program, Case { offsets, sizes: [1, 1, 32, 32], placement, order });
        }
    }
}

#[test]
fn blocks_of_sequences_in_other_types() {
    for elem in [Elem::F16, Elem::F32] {
        for program in &all(elem) {
            let case = |offsets, sizes, placement, order| check(program, Case { offsets, sizes, placement, order });
            case(1, [1, 1, 32, 64], Placement::Contiguous, Order::Random(1));
            case(2, [1, 2, 20, 12], Placement::Strided, Order::Descending);
        }
    }
}

/// Of the most keys, whose blocks read the first place of a slice, the first chunk and their sequence again, also where a width ends inside of a part.
#[test]
fn blocks_of_sequences_of_most_keys() {
    for (elem, order) in [(Elem::Bf16, Order::Ascending), (Elem::F16, Order::Random(1))] {
        for sizes in [[1, 1, 128, 64], [1, 2, 120, 72]] {
            let placement = Placement::Contiguous;
            check(&model_of("ssd_packed_states", elem), Case { offsets: 1, sizes, placement, order });
        }
    }
    // By warps, under several schedules.
    let program = model_of("ssd_packed_states", Elem::F32);
    for (rank, sizes) in [(0, [1, 1, 128, 64]), (1, [1, 1, 128, 64]), (0, [1, 2, 120, 72]), (0, [1, 1, 127, 33])] {
        let (placement, order) = (Placement::Contiguous, Order::Descending);
        check_on(&program, Case { offsets: 0, sizes, placement, order }, rank, &Target::A100);
    }
}

#[test]
fn every_schedule_of_chunks_has_blocks_of_sequences() {
    for name in MODELS {
        let program = &model_of(name, Elem::Bf16);
        let (sizes, placement, order) = ([1, 1, 64, 64], Placement::Contiguous, Order::Random(2));
        for rank in 1..6 {
            check_ranked(program, Case { offsets: 5, sizes, placement, order }, rank);
        }
    }
}

/// The gradients of all programs. Behind a norm, and of rules that are only read at their end, most of the gradients of decays and rates
/// cancels, which 16 bits do not leave exact.
fn gradients(elem: Elem) -> Vec<Program> {
    let is_exact = |program: &&Program| elem == Elem::F32 || !["gated", "last_only"].contains(&program.name.as_str());
    all(elem).iter().filter(is_exact).map(|program| adjoint(program).expect("differentiable")).collect()
}

#[test]
fn gradients_have_blocks_of_sequences() {
    for program in &gradients(Elem::Bf16) {
        check_shapes(program);
    }
}

#[test]
fn gradients_of_sequences_of_any_length() {
    let is_by_channel = |program: &&Program| program.name.starts_with("gated_linear");
    let (of_f32, of_bf16) = (gradients(Elem::F32), gradients(Elem::Bf16));
    // Few terms are left of a short sequence, whose errors do not average out in 16 bits.
    let exact = of_f32.iter().filter(|program| !is_by_channel(program));
    for program in exact.chain(of_bf16.iter().filter(is_by_channel)) {
        for (offsets, order) in [(4, Order::Ascending), (6, Order::Random(1)), (7, Order::Descending)] {
            check(program, Case { offsets, sizes: [2, 1, 32, 32], placement: Placement::Contiguous, order });
        }
    }
}

#[test]
fn gradients_of_sequences_in_other_types() {
    // Decays for each channel of such recurrences are for bf16.
    let is_taken = |program: &&Program| !program.name.starts_with("gated_linear");
    for program in gradients(Elem::F32).iter().filter(is_taken) {
        let case = |offsets, sizes, placement, order| check(program, Case { offsets, sizes, placement, order });
        case(1, [1, 1, 32, 64], Placement::Contiguous, Order::Random(1));
        case(2, [1, 2, 20, 12], Placement::Strided, Order::Descending);
        case(6, [1, 1, 64, 128], Placement::Contiguous, Order::Random(2));
    }
    for program in gradients(Elem::F16).iter().filter(is_taken) {
        let (placement, order) = (Placement::Contiguous, Order::Random(1));
        check(program, Case { offsets: 1, sizes: [1, 2, 64, 64], placement, order });
    }
}

#[test]
fn gradients_of_sequences_before_hopper() {
    for name in MODELS {
        let program = &adjoint(&model_of(name, Elem::Bf16)).expect("differentiable");
        let case =
            Case { offsets: 1, sizes: [1, 2, 64, 64], placement: Placement::Contiguous, order: Order::Random(5) };
        check_on(program, case, 0, &Target::A100);
    }
}

#[test]
fn every_schedule_of_gradients_has_blocks_of_sequences() {
    for name in MODELS {
        let program = &adjoint(&model_of(name, Elem::Bf16)).expect("differentiable");
        for rank in 1..6 {
            let (placement, order) = (Placement::Contiguous, Order::Random(2));
            check_ranked(program, Case { offsets: 1, sizes: [1, 2, 64, 64], placement, order }, rank);
        }
        let wide = if name == "delta_rule_packed_states" { 128 } else { 72 };
        for sizes in [[1, 1, 128, 64], [1, 1, 64, 128], [1, 1, 128, wide]] {
            let (placement, order) = (Placement::Contiguous, Order::Random(3));
            check(program, Case { offsets: 1, sizes, placement, order });
        }
    }
}

/// Where a sequence lies is read from shared memory again: in `f32` by warpgroups, in `bf16` by any warps.
#[test]
fn gradients_of_sequences_of_the_greatest_depth() {
    let gradient = |elem| adjoint(&model_of("ssd_packed_states", elem)).expect("differentiable");
    let (placement, order) = (Placement::Contiguous, Order::Random(4));
    let case = |sizes| Case { offsets: 2, sizes, placement, order };
    for sizes in [[2, 2, 128, 64], [1, 2, 128, 72], [1, 2, 128, 128]] {
        check(&gradient(Elem::F32), case(sizes));
    }
    for rank in 0..4 {
        check_ranked(&gradient(Elem::Bf16), case([2, 2, 128, 64]), rank);
    }
}

#[test]
fn other_programs_of_sequences_are_not_cut_so() {
    let backwards = "fn backwards(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], cu: i32[S + 1], s0: wide[B, S, H, K, V],
    ) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(LogDecay)(g, k * v), offsets = cu, init = s0, reverse).x);
    }";
    let beside = "fn beside(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], cu: i32[S + 1], s0: wide[B, S, H, K, V],
    ) -> (o: [B, H, T, V]) {
        let before = shift(T, k, 1);
        o = sum(K, q * scan(T, segmented(LogDecay)(g, before * v), offsets = cu, init = s0).x);
    }";
    let vectors = "fn vectors(a: [B, T], b: [B, T], cu: i32[S + 1], h0: wide[B, S]) -> (h: [B, T]) {
        h = scan(T, segmented(Affine)(a, b), offsets = cu, init = h0).b;
    }";
    let refusal = |program: &Program| {
        let planner = Planner::new(program, &Target::H200).expect("cuts");
        assert!(planner.cut(CutKind::Sequences).is_none(), "{}", program.name);
        let mut all = cuts(program).expect("cuts").0.into_iter();
        all.find(|(how, _)| *how == CutKind::Sequences).expect("every way to cut").1.expect_err("no such cut")
    };
    let no_states = CutRefusal::Absent { of: CutKind::Sequences };
    for (text, why) in [
        (backwards, CutRefusal::Sequences(SequencesRefusal::Scan)),
        (beside, CutRefusal::Sequences(SequencesRefusal::Values)),
        (vectors, no_states.clone()),
    ] {
        let program = written_of(text, Elem::Bf16);
        assert_eq!(refusal(&program), why, "{}", program.name);
        let gradient = adjoint(&program).expect("differentiable");
        let of_gradient = refusal(&gradient);
        assert!(text == vectors || of_gradient != no_states, "{}", gradient.name);
    }
}

#[test]
fn the_planner_takes_blocks_of_sequences_for_gradients() {
    for program in &gradients(Elem::Bf16) {
        let case =
            Case { offsets: 0, sizes: [8, 16, 64, 64], placement: Placement::Contiguous, order: Order::Ascending };
        let mut sizes = case.sizes(program);
        sizes[program.axis("T").expect("time").0 as usize] = 4096;
        let planner = Planner::new(program, &Target::H200).expect("cuts");
        let plan = planner.plan(&call(program, &sizes, case.placement)).expect("plans");
        assert_eq!(plan.cut, CutKind::Sequences, "{}", program.name);
        // The states of all times would be 64·64 numbers for each.
        let states = 8 * 16 * 4096 * 64 * 64 * 2;
        assert!(plan.buffer_bytes() < states / 3, "{}: {} bytes", program.name, plan.buffer_bytes());
    }
}

#[test]
fn the_planner_takes_blocks_of_sequences() {
    for program in &all(Elem::Bf16) {
        let case =
            Case { offsets: 0, sizes: [8, 16, 64, 64], placement: Placement::Contiguous, order: Order::Ascending };
        let mut sizes = case.sizes(program);
        sizes[program.axis("T").expect("time").0 as usize] = 4096;
        let planner = Planner::new(program, &Target::H200).expect("cuts");
        let plan = planner.plan(&call(program, &sizes, case.placement)).expect("plans");
        assert_eq!(plan.cut, CutKind::Sequences, "{}", program.name);
        // Readouts are stored where a norm is computed of them, factors where a kernel of its own prepares them, and no states.
        let readouts = 8 * 16 * 4096 * 64 * 4;
        assert!(plan.buffer_bytes() < 3 * readouts, "{}: {} bytes", program.name, plan.buffer_bytes());
    }
}
