//! Delta rules in chunks: fla's rule of errors against the interpreter.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::schedules::{Access, RuleSweep, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;

use crate::device::{Placement, Setting, Work, call, run};
use crate::oracle::rounded;

/// The root mean square of an error may be so much of that of what is exact, for keys of a type.
fn rule(elem: Elem) -> f64 {
    if elem == Elem::F32 { 0.0001 } else { 0.005 }
}

/// The types beside `bf16` whose products are taken in chunks.
pub(crate) const OTHERS: [Elem; 2] = [Elem::F16, Elem::F32];

pub(crate) fn model(name: &str) -> Program {
    model_of(name, Elem::Bf16)
}

pub(crate) fn model_of(name: &str, elem: Elem) -> Program {
    let all = oplus_front::model_programs();
    all.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem)
}

pub(crate) fn sizes(program: &Program, [b, h, t, k, v]: [usize; 5]) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "B" => b,
        "H" => h,
        "T" => t,
        "K" => k,
        "S" => 5,
        _ => v,
    };
    program.axes.iter().map(size).collect()
}

/// Inputs as models have them: keys of length 1, steps of 0 to 1, decays near 1.
pub(crate) fn inputs(program: &Program, sizes: &[usize]) -> Vec<Array> {
    let mut rng = Rng::new(11);
    let mut input = |param: &Param| {
        let own: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
        if param.name == "cu" {
            let time = sizes[program.axis("T").expect("time").0 as usize] as i64;
            return Array { sizes: own, data: Data::Int(vec![0, time / 7, time / 3, time / 3, time / 2 + 1]) };
        }
        let (low, high) = match param.name.as_str() {
            "beta" => (0.0, 1.0),
            "g" | "w" => (-0.5, 0.0),
            _ => (-1.0, 1.0),
        };
        let mut data: Vec<f64> = (0..own.iter().product()).map(|_| rng.between(low, high)).collect();
        if matches!(param.name.as_str(), "k" | "z" | "a" | "b") {
            for key in data.chunks_mut(own[own.len() - 1].max(1)) {
                let length = key.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
                key.iter_mut().for_each(|x| *x /= length);
            }
        }
        if param.name == "a" {
            // RWKV-7 has vectors a of its own for b: here both are a unit vector, and the state is moved by at most that.
            data.iter_mut().for_each(|x| *x *= 0.5);
        }
        data.iter_mut().for_each(|x| *x = rounded(*x, param.elem));
        Array { sizes: own, data: Data::Float(data) }
    };
    program.params.iter().map(&mut input).collect()
}

/// The fastest plan in chunks, of any cut.
pub(crate) fn chunked(
    program: &Program,
    sizes: &[usize],
    placement: Placement,
    target: &Target,
    is_chunked: impl Fn(&Schedule) -> bool,
) -> Plan {
    let planner = Planner::new(program, target).expect("cuts");
    let call = call(program, sizes, placement);
    let chunks = |plan: &Plan| plan.steps.iter().any(|step| is_chunked(&step.schedule));
    let plan = |how: CutKind, rank: usize| planner.plan_of(how, &call, rank).ok().flatten();
    let mut plans = (0..48).flat_map(|rank| CutKind::ALL.map(|how| (how, rank)));
    plans.find_map(|(how, rank)| plan(how, rank).filter(chunks)).expect("takes chunks")
}

fn relative_error(wanted: &Array, found: &Array) -> f64 {
    let (wanted, found) = (wanted.as_floats().unwrap(), found.as_floats().unwrap());
    let squares = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>();
    let error = squares(&mut wanted.iter().zip(found).map(|(a, b)| a - b));
    (error / squares(&mut wanted.iter().copied()).max(1e-300)).sqrt()
}

/// Rules as users write them: packed sequences, a state that is only read at its end, and outputs with a gate and a scale.
pub(crate) const WRITTEN: [&str; 3] = [
    "fn packed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: [B, H, T], cu: i32[S]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(DeltaRule)(beta, k, v), offsets = cu));
    }",
    "fn last_only(k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T], beta: [B, H, T], s0: f32[B, H, K, V]) -> (s: f32[B, H, K, V]) {
        s = last(T, scan(T, GatedDeltaRule(g, beta, k, v), init = s0));
    }",
    "fn gated(q: [B, T, H, K], k: [B, T, H, K], v: [B, T, H, V], z: [B, T, H, V], beta: [B, T, H], a: f32[H]) -> (o: [B, T, H, V]) {
        let s = scan(T, GatedDeltaRule(-exp(a) * beta, sigmoid(beta), k, v));
        o = silu(z) * 0.125 * sum(K, s * q);
    }",
];

pub(crate) fn written(text: &str) -> Program {
    written_of(text, Elem::Bf16)
}

pub(crate) fn written_of(text: &str, elem: Elem) -> Program {
    let programs = oplus_front::programs(text.parse().expect("tokens")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    programs[0].instantiate(elem)
}

pub(crate) fn check(program: &Program, lengths: [usize; 5], how: (Placement, Order)) {
    compare(program, lengths, how, |schedule| matches!(schedule, Schedule::ChunkDelta(_)));
}

/// Compares the fastest plan with a schedule of chunks with the interpreter.
pub(crate) fn compare(
    program: &Program,
    lengths: [usize; 5],
    (placement, order): (Placement, Order),
    is_chunked: impl Fn(&Schedule) -> bool,
) {
    let given = inputs(program, &sizes(program, lengths));
    compare_given(program, (lengths, &given), (placement, order), is_chunked);
}

/// The outputs by the fastest plan with a schedule, for some inputs.
pub(crate) fn simulated(
    program: &Program,
    of: ([usize; 5], &[Array]),
    how: (Placement, Order),
    is_taken: impl Fn(&Schedule) -> bool,
) -> Vec<Array> {
    simulated_on(&Target::H200, program, of, how, is_taken)
}

/// The outputs by the fastest plan for a device with a schedule, for some inputs.
pub(crate) fn simulated_on(
    target: &Target,
    program: &Program,
    (lengths, given): ([usize; 5], &[Array]),
    (placement, order): (Placement, Order),
    is_taken: impl Fn(&Schedule) -> bool,
) -> Vec<Array> {
    let sizes = sizes(program, lengths);
    let work = Work::of(chunked(program, &sizes, placement, target, is_taken));
    run(program, &work, given, &sizes, Setting { placement, order, isa: Isa::Sm90a })
}

/// Compares what a plan gives for some inputs.
pub(crate) fn compare_given(
    program: &Program,
    (lengths, given): ([usize; 5], &[Array]),
    (placement, order): (Placement, Order),
    is_chunked: impl Fn(&Schedule) -> bool,
) {
    let (name, rule) = (&program.name, rule(program.params[0].elem));
    let sizes = sizes(program, lengths);
    let found = simulated(program, (lengths, given), (placement, order), is_chunked);
    let optional: Vec<Option<Array>> = given.iter().cloned().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes).collect();
    let wanted = interpret_sized(program, &optional, &named, Mode::default()).expect("runs");
    for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
        let error = relative_error(wanted, found);
        let elem = program.params[0].elem;
        assert!(error < rule, "{name} {elem} {lengths:?} {placement:?}: `{}` is off by {error}", output.name);
    }
}

#[test]
fn chunks_give_what_the_rule_means() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let program = &model(name);
        check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check(program, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
        check(program, [1, 1, 1, 32, 64], (Placement::Contiguous, Order::Random(2)));
        check(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        check(program, [1, 1, 67, 21, 3], (Placement::Strided, Order::Random(4)));
        check(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
    }
}

#[test]
fn chunks_of_other_types_give_what_the_rule_means() {
    for elem in OTHERS {
        for name in ["delta_rule", "gated_delta_rule"] {
            let program = &model_of(name, elem);
            check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
            check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
            check(program, [2, 1, 261, 128, 64], (Placement::Contiguous, Order::Descending));
            check(program, [1, 1, 1, 32, 64], (Placement::Contiguous, Order::Random(2)));
            check(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
            check(program, [1, 1, 67, 21, 3], (Placement::Strided, Order::Random(4)));
            check(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
        }
        for text in WRITTEN {
            let program = &written_of(text, elem);
            check(program, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
            check(program, [1, 1, 33, 20, 12], (Placement::Strided, Order::Random(2)));
        }
    }
}

#[test]
fn chunks_of_other_types_with_a_decay_for_each_channel_and_with_two_keys() {
    for elem in OTHERS {
        let kda = &model_of("kda", elem);
        check(kda, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check(kda, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check(kda, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        for text in CHANNELS {
            let program = &written_of(text, elem);
            check(program, [1, 1, 150, 32, 64], (Placement::Contiguous, Order::Random(1)));
            check(program, [1, 1, 70, 20, 12], (Placement::Strided, Order::Descending));
        }
        for program in [model_of("rwkv7", elem)].into_iter().chain(TWO_KEYS.map(|text| written_of(text, elem))) {
            check(&program, [1, 1, 100, 32, 64], (Placement::Contiguous, Order::Random(1)));
            check(&program, [1, 1, 67, 21, 13], (Placement::Strided, Order::Random(4)));
        }
    }
}

/// Single elements of the greatest depth: the places of threads are computed again, and products of queries stand apart.
#[test]
fn chunks_of_many_keys_by_single_elements_give_what_the_rule_means() {
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        for name in ["delta_rule", "gated_delta_rule"] {
            check(&model_of(name, elem), [1, 2, 197, 97, 35], (Placement::Strided, Order::Random(2)));
        }
        for text in WRITTEN {
            check(&written_of(text, elem), [2, 1, 131, 121, 21], (Placement::Strided, Order::Descending));
        }
    }
}

/// Tiles so large that products over pairs of times wait for the walk of the tile before.
#[test]
fn chunks_of_large_tiles_give_what_the_rule_means() {
    let kda = &model_of("kda", Elem::F32);
    check(kda, [1, 1, 130, 128, 128], (Placement::Contiguous, Order::Random(1)));
    check(kda, [1, 1, 65, 128, 16], (Placement::Padded, Order::Descending));
    check(kda, [1, 1, 197, 97, 13], (Placement::Strided, Order::Random(2)));
    let strong = &written_of(CHANNELS[0], Elem::F32);
    check(strong, [1, 1, 129, 128, 64], (Placement::Contiguous, Order::Random(3)));
    for (elem, keys) in [(Elem::F32, 64), (Elem::Bf16, 128), (Elem::F16, 128)] {
        for program in [model_of("rwkv7", elem)].into_iter().chain(TWO_KEYS.map(|text| written_of(text, elem))) {
            check(&program, [1, 1, 193, keys, 64], (Placement::Contiguous, Order::Random(4)));
            check(&program, [1, 2, 1, keys, 64], (Placement::Contiguous, Order::Ascending));
        }
        let rwkv7 = &model_of("rwkv7", elem);
        check(rwkv7, [1, 1, 131, keys - 24, 24], (Placement::Padded, Order::Descending));
    }
    check(&model_of("rwkv7", Elem::F32), [1, 1, 67, 47, 13], (Placement::Strided, Order::Random(5)));
    // Only prepared tiles have room.
    check(&model_of("rwkv7", Elem::F32), [1, 1, 131, 128, 32], (Placement::Contiguous, Order::Random(6)));
    check(&model_of("rwkv7", Elem::F32), [1, 2, 70, 116, 20], (Placement::Padded, Order::Descending));
    check(&written_of(TWO_KEYS[2], Elem::F32), [1, 1, 97, 128, 16], (Placement::Contiguous, Order::Random(7)));
}

/// States that no `f16` holds: keys are short, and values near the greatest number.
#[test]
fn states_leave_the_range_of_f16() {
    for name in ["delta_rule", "gated_delta_rule", "kda"] {
        let program = &model_of(name, Elem::F16);
        let lengths = [1, 1, 300, 64, 64];
        let sizes = sizes(program, lengths);
        let mut given = inputs(program, &sizes);
        for (param, array) in program.params.iter().zip(&mut given) {
            let Data::Float(data) = &mut array.data else { continue };
            let by = match param.name.as_str() {
                "q" => 0.01,
                "k" => 0.1,
                "g" => 0.01,
                _ => 1.0,
            };
            data.iter_mut().for_each(|x| *x *= by);
            match param.name.as_str() {
                "k" => data.iter_mut().step_by(64).for_each(|x| *x += 0.3),
                "v" => data.iter_mut().for_each(|x| *x = 60000.0 * x.abs()),
                _ => {}
            }
            data.iter_mut().for_each(|x| *x = rounded(*x, param.elem));
        }
        let optional: Vec<Option<Array>> = given.iter().cloned().map(Some).collect();
        let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes).collect();
        let exact = interpret_sized(program, &optional, &named, Mode::default()).expect("runs");
        let state = program.outputs.iter().position(|output| output.name != "o").expect("a state");
        let largest = exact[state].as_floats().expect("floats").iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert!(largest > 65504.0, "{name}: {largest}");
        let how = (Placement::Contiguous, Order::Random(1));
        compare_given(program, (lengths, &given), how, |schedule| matches!(schedule, Schedule::ChunkDelta(_)));
    }
}

#[test]
fn blocks_have_any_part_of_the_width() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let program = &model(name);
        for places in [16, 32, 64] {
            let has_places =
                |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if own.places == places);
            compare(program, [1, 2, 200, 64, 64], (Placement::Contiguous, Order::Random(1)), has_places);
            compare(program, [2, 1, 65, 128, 128], (Placement::Contiguous, Order::Descending), has_places);
            compare(program, [1, 2, 330, 24, 12], (Placement::Padded, Order::Random(3)), has_places);
            compare(program, [1, 1, 67, 33, 13], (Placement::Strided, Order::Random(4)), has_places);
        }
    }
}

/// Rules with a decay for each channel: strong decays, packed sequences, states that are read before they decay, and decays that are
/// computed.
pub(crate) const CHANNELS: [&str; 4] = [
    "fn strong(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T, K], beta: [B, H, T]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, ChannelDeltaRule(60.0 * g, beta, k, v)));
    }",
    "fn packed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T, K], beta: [B, H, T], cu: i32[S]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(ChannelDeltaRule)(g, beta, k, v), offsets = cu));
    }",
    "op ReadBefore(g: [K], beta, k: [K], v: [V]) -> (s: [K, V]) {
        combine(l, r) (exp(r.g) * l.s + r.beta * r.k * (r.v - sum(K, l.s * r.k)));
    }
    fn before(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T, K], beta: [B, H, T]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, ReadBefore(g, beta, k, v)));
    }",
    "fn computed(q: [B, T, H, K], k: [B, T, H, K], v: [B, T, H, V], g: [B, T, H, K], beta: [B, T, H], a: f32[H]) -> (o: [B, T, H, V]) {
        o = 0.125 * sum(K, q * scan(T, ChannelDeltaRule(-exp(a) * softplus(g), sigmoid(beta), k, v)));
    }",
];

/// Checks rules as texts, in whole accesses and by single elements.
fn check_texts(texts: &[&str]) {
    for text in texts {
        let program = &written(text);
        check(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, [1, 1, 70, 20, 12], (Placement::Strided, Order::Descending));
    }
}

#[test]
fn chunks_with_a_decay_for_each_channel() {
    let kda = &model("kda");
    check(kda, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
    check(kda, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
    check(kda, [1, 1, 150, 128, 64], (Placement::Contiguous, Order::Descending));
    check(kda, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
    check(kda, [1, 1, 67, 21, 3], (Placement::Strided, Order::Random(4)));
    check_texts(&CHANNELS);
}

/// Rules whose step adds what the state gives times another vector than the key.
pub(crate) const TWO_KEYS: [&str; 3] = [
    "op Two(z: [K], b: [K], y: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (l.s + sum(K, l.s * r.z) * r.b + r.v * r.y);
    }
    fn apart(q: [B, H, T, K], k: [B, H, T, K], z: [B, H, T, K], y: [B, H, T, K], v: [B, H, T, V], beta: [B, H, T]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, Two(-0.25 * beta * z, k, 0.5 * y, v)));
    }",
    "op Decayed(g, z: [K], b: [K], y: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (exp(r.g) * l.s + sum(K, l.s * r.z) * r.b + r.v * r.y);
    }
    fn packed(q: [B, H, T, K], k: [B, H, T, K], y: [B, H, T, K], v: [B, H, T, V], g: [B, H, T], beta: [B, H, T], cu: i32[S]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(Decayed)(g, -beta * k, k, y, v), offsets = cu));
    }",
    "fn strong(r: [B, H, T, K], g: [B, H, T, K], y: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: [B, H, T]) -> (o: [B, H, T, V]) {
        o = sum(K, r * scan(T, DiagonalPlusPair(exp(60.0 * g), -beta * k, k, y * v)));
    }",
];

#[test]
fn chunks_of_rules_with_two_keys() {
    let rwkv7 = &model("rwkv7");
    check(rwkv7, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
    check(rwkv7, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
    check(rwkv7, [1, 1, 67, 21, 13], (Placement::Strided, Order::Random(4)));
    check_texts(&TWO_KEYS);
}

/// Asserts that a kernel that prepares tiles of times for the walk gives the bits of blocks that prepare their own.
pub(crate) fn check_prepared(program: &Program, lengths: [usize; 5], (placement, order): (Placement, Order)) {
    let given = inputs(program, &sizes(program, lengths));
    let of = |sweep: RuleSweep| {
        let is_meant = move |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if own.sweep == sweep);
        simulated(program, (lengths, &given), (placement, order), is_meant)
    };
    let (prepared, whole) = (of(RuleSweep::Walk), of(RuleSweep::Whole));
    for ((prepared, whole), output) in prepared.iter().zip(&whole).zip(&program.outputs) {
        let bits = |array: &Array| array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(prepared) == bits(whole), "{} {lengths:?}: `{}`", program.name, output.name);
    }
}

#[test]
fn prepared_tiles_give_the_bits_of_those_of_the_block() {
    let texts = CHANNELS.iter().chain(&TWO_KEYS[2..]).map(|text| written(text));
    let models = ["delta_rule", "gated_delta_rule", "kda", "rwkv7"].map(model);
    for program in models.into_iter().chain(texts).chain(WRITTEN.map(written)) {
        for time in [1, 16, 63, 64, 65, 200] {
            check_prepared(&program, [1, 2, time, 64, 64], (Placement::Contiguous, Order::Random(time as u64)));
        }
        check_prepared(&program, [2, 1, 130, 128, 16], (Placement::Contiguous, Order::Descending));
        check_prepared(&program, [1, 1, 150, 32, 128], (Placement::Contiguous, Order::Ascending));
        check_prepared(&program, [1, 2, 129, 24, 40], (Placement::Padded, Order::Random(3)));
    }
    for elem in OTHERS {
        let models = ["delta_rule", "gated_delta_rule", "kda", "rwkv7"].map(|name| model_of(name, elem));
        for program in models.into_iter().chain([written_of(CHANNELS[0], elem), written_of(WRITTEN[0], elem)]) {
            check_prepared(&program, [1, 2, 193, 64, 64], (Placement::Contiguous, Order::Random(1)));
            check_prepared(&program, [1, 1, 70, 24, 16], (Placement::Padded, Order::Random(2)));
        }
    }
}

#[test]
fn chunks_of_rules_as_users_write_them() {
    for text in WRITTEN {
        let program = &written(text);
        check(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
        check(program, [1, 1, 33, 20, 12], (Placement::Strided, Order::Random(2)));
    }
}

/// The reason why a stage with a recurrence is not taken by chunks.
fn refusal(program: &Program) -> String {
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    let cut = planner.cut(CutKind::Plain).expect("a cut");
    let stage = cut.stages.iter().find(|stage| stage.recurrence().is_some()).expect("a recurrence");
    stage.kind().delta().expect_err("no chunks").to_string()
}

#[test]
fn other_recurrences_go_state_by_state_and_the_reason_is_told() {
    let plain = |name: &str| refusal(&model(name));
    assert!(plain("kda").contains("not the exponential"), "{}", plain("kda"));
    let matrix = "op Whole(m: [K, J], y: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (sum(J, r.m * rename(l.s, K = J)) + r.v * r.y);
    }
    fn dense(q: [T, K], m: [T, K, J], y: [T, K], v: [T, V]) -> (o: [T, V]) { o = sum(K, q * scan(T, Whole(m, y, v))); }";
    assert!(refusal(&written(matrix)).contains("one pair"), "{}", refusal(&written(matrix)));
    let all = "fn all(k: [T, K], v: [T, V], beta: [T]) -> (s: [T, V, K]) { s = scan(T, DeltaRule(beta, k, v)); }";
    assert_eq!(refusal(&written(all)), "all states are written");
    let reverse = "fn back(q: [T, K], k: [T, K], v: [T, V], beta: [T]) -> (o: [T, V]) {
        o = sum(K, q * scan(T, DeltaRule(beta, k, v), reverse));
    }";
    assert_eq!(refusal(&written(reverse)), "the scan begins at the end");
    let short = model("delta_rule");
    let planner = Planner::new(&short, &Target::H200).expect("cuts");
    let plan = planner.plan(&call(&short, &sizes(&short, [1, 1, 64, 8, 8]), Placement::Contiguous)).expect("plans");
    let chunks = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(_));
    let refused = plan.choices.iter().flat_map(|choice| &choice.refused).find(|(schedule, _)| chunks(schedule));
    assert!(refused.is_some() && !plan.steps.iter().any(|step| chunks(&step.schedule)));
}

#[test]
fn state_by_state_the_exponentials_of_decays_are_computed_before() {
    let kda = oplus_front::model_programs().into_iter().find(|program| program.name == "kda").expect("a model");
    for (elem, keys) in [(Elem::F32, 8), (Elem::F16, 8), (Elem::Bf16, 8)] {
        let program = kda.instantiate(elem);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        let call = call(&program, &sizes(&program, [1, 2, 128, keys, 64]), Placement::Contiguous);
        let plan = planner.plan(&call).expect("plans");
        let schedules: Vec<&Schedule> = plan.steps.iter().map(|step| &step.schedule).collect();
        assert!(matches!(schedules[..], [Schedule::Map(_), Schedule::Recurrence(_)]), "{elem}: {schedules:?}");
    }
}

#[test]
fn schedules_print_and_parse() {
    let program = model("delta_rule");
    let planner = Planner::new(&program, &Target::H200).expect("cuts");
    let stage = &planner.cut(CutKind::Plain).expect("a cut").stages[0];
    let all = Schedule::candidates(stage, Target::H200.isa, Access::Singles);
    assert!(all.iter().any(|schedule| matches!(schedule, Schedule::ChunkDelta(_))));
    for schedule in all {
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }
}
