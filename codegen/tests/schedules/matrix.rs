//! The matrix form in plans: recurrences and sums over pairs that land in it by recognition, what does not and why, memory,
//! and decoding from the state that a prefill gave.

use oplus_codegen::explain::Explanation;
use oplus_codegen::plan::{Launch, Plan, Planner};
use oplus_codegen::schedules::chunkwise::KeyParts;
use oplus_codegen::schedules::{Chunkwise, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar::round;
use oplus_dsl::step::step;
use oplus_dsl::testing::relative_error;

use crate::device::{Placement, Setting, Work, call, goes_by_chunks, run};

fn model(name: &str) -> Program {
    model_of(name, Elem::Bf16)
}

fn model_of(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem)
}

fn written(text: &str) -> Program {
    let programs = oplus_front::programs(text.parse().expect("tokens")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    programs[0].instantiate(Elem::Bf16)
}

fn sizes(program: &Program, size: impl Fn(&str) -> usize) -> Vec<usize> {
    program.axes.iter().map(|axis| size(axis)).collect()
}

fn plan(program: &Program, sizes: &[usize]) -> Plan {
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    planner.plan(&call(program, sizes, Placement::Contiguous)).expect("plans")
}

/// Sizes of a training run.
fn long(axis: &str) -> usize {
    match axis {
        "T" | "L" => 4096,
        "B" => 4,
        "H" => 32,
        "G" => 1,
        "D" => 1024,
        _ => 64,
    }
}

fn takes_chunks(program: &Program) -> bool {
    plan(program, &sizes(program, long)).steps.iter().any(|step| goes_by_chunks(&step.schedule))
}

#[test]
fn recurrences_of_matrices_take_chunks() {
    for name in ["ssd", "ssd_softplus", "mamba2", "monoid_attention", "retention", "linear_attention"] {
        assert!(takes_chunks(&model(name)), "{name}");
    }
    assert!(takes_chunks(&model("gated_linear_attention")), "decays of channels");
    let others = ["ssd", "mamba2", "retention", "gated_linear_attention"];
    for (name, elem) in others.iter().flat_map(|name| [(name, Elem::F16), (name, Elem::F32)]) {
        assert!(takes_chunks(&model_of(name, elem)), "{name} in {elem}");
    }
}

fn gradient_takes_chunks(program: &Program) -> bool {
    let gradient = adjoint(program).expect("a gradient");
    let steps = plan(&gradient, &sizes(&gradient, long)).steps;
    steps.iter().any(|step| goes_by_chunks(&step.schedule))
}

#[test]
fn so_do_their_gradients() {
    for name in ["ssd", "ssd_softplus", "mamba2", "monoid_attention", "retention", "linear_attention"] {
        assert!(gradient_takes_chunks(&model(name)), "{name}");
    }
    assert!(gradient_takes_chunks(&model("gated_linear_attention")), "decays of channels");
    for (name, elem) in ["ssd", "mamba2", "retention"].iter().flat_map(|name| [(name, Elem::F16), (name, Elem::F32)]) {
        assert!(gradient_takes_chunks(&model_of(name, elem)), "{name} in {elem}");
    }
    let head = "q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V]";
    let kernels = [
        format!(
            "fn retnet({head}, rate: f32[H], gate: [B, H, T, V]) -> (o: [B, H, T, V]) {{
            o = silu(gate) * sum(K, q * scan(T, LogDecay(-exp(rate), k * v)).x);
        }}"
        ),
        format!(
            "fn features({head}) -> (o: [B, H, T, V]) {{
            o = sum(K, softplus(q) * scan(T, Sum(softplus(k) * v)));
        }}"
        ),
        format!(
            "fn channels({head}, gate: [B, H, T, K]) -> (o: [B, H, T, V]) {{
            o = sum(K, q * scan(T, LogDecay(-softplus(gate), k * v)).x);
        }}"
        ),
    ];
    for text in kernels {
        assert!(gradient_takes_chunks(&written(&text)), "{text}");
    }
}

#[test]
fn so_do_wide_states_in_parts() {
    let wide = |axis: &str| if matches!(axis, "P" | "V") { 128 } else { long(axis) };
    for name in ["ssd", "mamba2", "monoid_attention", "retention", "linear_attention"] {
        for program in [model(name), adjoint(&model(name)).expect("a gradient")] {
            let steps = plan(&program, &sizes(&program, wide)).steps;
            let is_wide = |step: &Schedule| match step {
                Schedule::Chunkwise(s) => s.wide,
                Schedule::ChunkwiseBackward(s) => s.wide,
                _ => false,
            };
            assert!(steps.iter().any(|step| is_wide(&step.schedule)), "{}", program.name);
        }
    }
}

/// Few long recurrences that share keys have blocks of two; of an odd number one would be left over, and many fill the device one by one.
#[test]
fn few_heads_that_share_keys_are_walked_two_by_two() {
    for (batch, times, heads, depth, expected) in
        [(1, 65536, 24, 128, 2), (1, 65536, 23, 128, 1), (8, 2048, 80, 128, 1), (1, 65536, 24, 64, 1)]
    {
        let program = model("ssd");
        let of = |axis: &str| match axis {
            "B" => batch,
            "T" => times,
            "G" => 1,
            "H" => heads,
            "N" => depth,
            _ => 64,
        };
        let steps = plan(&program, &sizes(&program, of)).steps;
        let found = steps.iter().find_map(|step| match &step.schedule {
            Schedule::Chunkwise(own) => Some(own.heads),
            _ => None,
        });
        assert_eq!(found, Some(expected), "{batch} {times} {heads} {depth}");
    }
}

#[test]
fn so_do_those_that_users_write() {
    let head = "q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V]";
    let kernels = [
        format!(
            "fn retnet({head}, rate: f32[H]) -> (o: [B, H, T, V]) {{
            o = sum(K, q * scan(T, LogDecay(-exp(rate), k * v)).x);
        }}"
        ),
        format!(
            "fn gated({head}, gate: [B, H, T]) -> (o: [B, H, T, V]) {{
            o = sum(K, q * scan(T, LogDecay(-softplus(gate), k * v)).x);
        }}"
        ),
        format!(
            "fn monoid({head}, g: [B, H, T], s0: f32[B, H, K, V]) -> (o: [B, H, T, V], s: f32[B, H, K, V]) {{
            let all = scan(T, LogDecay(g, k * v), init = s0);
            o = sum(K, all.x * q);
            s = last(T, all.x);
        }}"
        ),
        format!(
            "fn channels({head}, gate: [B, H, T, K]) -> (o: [B, H, T, V]) {{
            o = sum(K, q * scan(T, LogDecay(-softplus(gate), k * v)).x);
        }}"
        ),
    ];
    for text in kernels {
        assert!(takes_chunks(&written(&text)), "{text}");
    }
}

#[test]
fn a_full_diagonal_does_not_and_the_explanation_says_why() {
    for name in ["selective_scan", "mamba"] {
        let program = model(name);
        assert!(!takes_chunks(&program), "{name}");
        let plan = plan(&program, &sizes(&program, |axis| if axis == "N" { 16 } else { long(axis) }));
        let text = Explanation::of(&program, &plan).to_string();
        assert!(text.contains("chunkwise: every state has a decay of its own, over D and N"), "{text}");
        let gradient = adjoint(&program).expect("a gradient");
        assert!(!gradient_takes_chunks(&program), "the gradient of {name}");
        let size = |axis: &str| if axis == "N" { 16 } else { long(axis) };
        let plan = self::plan(&gradient, &sizes(&gradient, size));
        let text = Explanation::of(&gradient, &plan).to_string();
        assert!(text.contains("chunkwise_backward: every state has a decay of its own, over D and N"), "{text}");
    }
}

#[test]
fn attention_needs_memory_for_its_lengths_and_not_for_their_product() {
    for name in ["attention", "attention_causal", "attention_window", "attention_softcap", "attention_packed_causal"] {
        for program in [model(name), adjoint(&model(name)).expect("a gradient")] {
            let bytes = |n: usize| {
                let sizes = sizes(&program, |axis| match axis {
                    "M" | "N" => n,
                    "E" | "F" => 64,
                    "R" => 4,
                    _ => 2,
                });
                let plan = plan(&program, &sizes);
                let temporary = plan.buffers.iter().map(|b| b.len * b.elem.bytes().expect("stored") as u64);
                [temporary.sum::<u64>(), 8 * plan.message_words]
            };
            let ([short, _], [long, messages]) = (bytes(4096), bytes(4 * 4096));
            assert!(long <= 4 * short.max(1 << 16), "{}: {short} and {long} bytes", program.name);
            // Sums over rows take a word for each of their tiles and each tile of columns, of which there are at most as many as
            // multiprocessors.
            assert!(messages <= long / 16 + (1 << 16), "{}: {messages} bytes of messages beside {long}", program.name);
        }
    }
}

/// Numbers that a parameter may have: decays and step sizes are such that states do not grow.
fn inputs(program: &Program, sizes: &[usize]) -> Vec<Array> {
    let mut rng = Rng::new(5);
    let mut number = |param: &Param| {
        let (low, high) = match param.name.as_str() {
            "a" | "g" => (-1.0, 0.0),
            "dt" => (0.1, 1.0),
            _ => (-1.0, 1.0),
        };
        round(param.elem, rng.between(low, high))
    };
    let mut array = |param: &Param| {
        let own: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
        let data: Vec<f64> = (0..own.iter().product()).map(|_| number(param)).collect();
        Array { sizes: own, data: Data::Float(data) }
    };
    program.params.iter().map(&mut array).collect()
}

/// Some indices of an array along one of its axes.
fn cut(array: &Array, along: Option<usize>, range: std::ops::Range<usize>) -> Array {
    let (Some(axis), Some(numbers)) = (along, array.as_floats()) else { return array.clone() };
    let (size, inner) = (array.sizes[axis], array.sizes[axis + 1..].iter().product::<usize>().max(1));
    let kept = |i: &usize| range.contains(&(i / inner % size));
    let data: Vec<f64> = (0..numbers.len()).filter(kept).map(|i| numbers[i]).collect();
    let mut sizes = array.sizes.clone();
    sizes[axis] = range.len();
    Array { sizes, data: Data::Float(data) }
}

fn simulated(program: &Program, plan: Plan, inputs: &[Array], sizes: &[usize]) -> Vec<Array> {
    let setting = Setting { placement: Placement::Contiguous, order: Order::Random(2), isa: Isa::Sm90a };
    run(program, &Work::of(plan), inputs, sizes, setting)
}

/// The fastest plan in chunks.
fn chunked(program: &Program, sizes: &[usize]) -> Plan {
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    let call = call(program, sizes, Placement::Contiguous);
    let ranked = |rank| planner.plan_ranked(&call, rank).ok();
    let chunks = |plan: &Plan| plan.steps.iter().any(|step| matches!(step.schedule, Schedule::Chunkwise(_)));
    (0..40).filter_map(ranked).find(chunks).expect("takes chunks")
}

/// Decodes some times one by one after a prefill in chunks, and compares with the whole.
fn check_decoding(name: &str, elem: Elem) {
    const PREFILL: usize = 70;
    const ALL: usize = 73;
    let (program, step) = (model_of(name, elem), step(&model_of(name, elem)).expect("a step"));
    let lengths = |program: &Program, t: usize| {
        sizes(program, |axis| match axis {
            "T" => t,
            "H" => 2,
            "P" | "V" => 32,
            "N" | "K" => 16,
            _ => 1,
        })
    };
    let (whole, time) = (lengths(&program, ALL), program.axis("T"));
    let given = inputs(&program, &whole);
    let along = |axes: &[Axis]| axes.iter().position(|axis| Some(*axis) == time);
    let part = |range: std::ops::Range<usize>| -> Vec<Array> {
        program.params.iter().zip(&given).map(|(p, array)| cut(array, along(&p.axes), range.clone())).collect()
    };
    let optional: Vec<Option<Array>> = given.iter().cloned().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(whole).collect();
    let wanted = interpret_sized(&program, &optional, &named, Mode::default()).expect("runs");
    let place = |name: &str| program.outputs.iter().position(|o| o.name == name).expect("an output");
    let prefill = lengths(&program, PREFILL);
    let mut outputs = simulated(&program, chunked(&program, &prefill), &part(0..PREFILL), &prefill);
    for t in PREFILL..ALL {
        let now = part(t..t + 1);
        let input = |param: &Param| {
            if let Some(state) = step.states.iter().find(|s| s.param == param.name) {
                return outputs[place(&state.output)].clone();
            }
            let at = program.params.iter().position(|p| p.name == param.name).expect("a parameter");
            let mut array = now[at].clone();
            if let Some(axis) = along(&program.params[at].axes) {
                array.sizes.remove(axis);
            }
            array
        };
        let inputs: Vec<Array> = step.program.params.iter().map(input).collect();
        let once = lengths(&step.program, 1);
        outputs = simulated(&step.program, plan(&step.program, &once), &inputs, &once);
        let (first, axes) = (&program.outputs[0], &program.outputs[0].axes);
        let wanted = cut(&wanted[0], along(axes), t..t + 1);
        assert!(relative_error(&wanted, &outputs[0]) <= 5e-3, "{name}: `{}` at {t}", first.name);
    }
}

#[test]
fn decoding_goes_on_from_the_state_of_a_prefill() {
    for name in
        ["ssd_softplus", "mamba2", "monoid_attention", "retention", "linear_attention", "gated_linear_attention"]
    {
        check_decoding(name, Elem::Bf16);
    }
    for elem in [Elem::F16, Elem::F32] {
        check_decoding("retention", elem);
    }
}

/// Some parameters of the launches of a program's plan that go forward by chunks.
fn forward_by_chunks<T>(program: &Program, size: impl Fn(&str) -> usize, of: impl Fn(&Chunkwise) -> T) -> Vec<T> {
    let of_step = |step: &Launch| match &step.schedule {
        Schedule::Chunkwise(own) => Some(of(own)),
        _ => None,
    };
    // Decays of channels may be faster in chunks of 16 times.
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    let call = call(program, &sizes(program, size), Placement::Contiguous);
    let found = |rank| planner.plan_ranked(&call, rank).expect("plans").steps.iter().filter_map(of_step).collect();
    (0..64).map(found).find(|found: &Vec<T>| !found.is_empty()).unwrap_or_default()
}

/// Parts of queries and keys that heads share are prepared, and other warps read the state than those that advance it; but not in a call
/// without times, whose last state is its first.
#[test]
fn parts_of_no_times_are_not_prepared() {
    let program = model_of("ssd", Elem::F32);
    let parts = |times: usize| {
        let size = |axis: &str| match axis {
            "B" => 8,
            "T" => times,
            "G" => 1,
            "H" => 80,
            "P" => 64,
            _ => 128,
        };
        forward_by_chunks(&program, size, |own| (own.key_parts, own.readers))
    };
    assert!(parts(2048).contains(&(KeyParts::Prepare, 0)));
    assert!(parts(2048).contains(&(KeyParts::Prepared, 4)));
    assert!(parts(0).iter().all(|own| *own == (KeyParts::Divided, 0)));
}

/// Four warps copy no chunk of channels of `f32` ahead, so that two blocks share a multiprocessor, which is faster than a chunk ahead.
#[test]
fn four_warps_copy_no_chunk_of_channels_of_f32_ahead() {
    let program = model_of("gated_linear_attention", Elem::F32);
    let of_keys = |keys: usize| {
        let size = |axis: &str| match axis {
            "B" => 8,
            "T" => 2048,
            "H" => 16,
            "K" => keys,
            _ => 64,
        };
        forward_by_chunks(&program, size, |own| (own.warps, own.stages, own.blocks))
    };
    assert_eq!(of_keys(64), [(4, 1, 2), (4, 1, 2)]);
}
