//! The cases of attention and of the state-space dual.

use oplus::{Elem, models};

use super::cases::{Case, Fill, Group, Work};

const STEP: Fill = Fill::Uniform(0.0, 0.1);
const RATE: Fill = Fill::Uniform(-1.5, -0.5);

/// Batches, heads, steps and head sizes whose products are those of the usual tables: B·S = 16 384, H·D = 2048.
fn usual() -> impl Iterator<Item = [usize; 4]> {
    let sizes = [64, 128].into_iter().flat_map(|d| [512, 1024, 2048, 4096, 8192, 16_384].map(|s| (s, d)));
    sizes.map(|(s, d)| [16_384 / s, 2048 / d, s, d])
}

/// Lengths that are no multiple of a tile.
const ODD: [[usize; 4]; 3] = [[1, 16, 1920, 64], [3, 16, 1111, 64], [3, 16, 1111, 128]];

/// New queries against many keys: batches, heads, queries, keys and places.
const DECODING: [[usize; 5]; 8] = [
    [1, 8, 1, 65_536, 128],
    [1, 8, 16, 65_536, 128],
    [4, 8, 1, 8192, 128],
    [4, 8, 4, 8192, 128],
    [4, 8, 16, 8192, 128],
    [16, 32, 1, 2048, 128],
    [1, 16, 1, 32_768, 64],
    [8, 16, 16, 8192, 64],
];

/// One head in f32, for the CPU.
const ONE_HEAD: [usize; 4] = [1, 1, 1024, 128];

/// Batches, steps, heads, head sizes, groups and states.
const DUALS: [[usize; 6]; 4] =
    [[8, 2048, 80, 64, 1, 128], [2, 8192, 80, 64, 1, 128], [1, 65_536, 24, 64, 1, 128], [8, 2048, 24, 64, 1, 64]];

/// Shapes whose heads have 80 or 96 places, which no tile of 64 divides, and beside them heads of 128, which two tiles fill.
const ODD_DUALS: [[usize; 6]; 3] = [[8, 2048, 16, 80, 1, 128], [8, 2048, 16, 96, 1, 128], [8, 2048, 16, 128, 1, 128]];

/// Every shape forward and backward, attention with a causal mask and without.
pub fn cases() -> Vec<Case> {
    let each = |(shape, elem)| {
        let masks = [(false, false), (false, true), (true, false), (true, true)];
        masks.map(|(causal, back)| attention(shape, elem, causal, back))
    };
    let shapes = usual().chain(ODD).map(|shape| (shape, Elem::Bf16));
    let mut cases: Vec<Case> = shapes.chain([(ONE_HEAD, Elem::F32)]).flat_map(each).collect();
    cases.extend(DECODING.map(decoding));
    cases.extend(
        DUALS.into_iter().chain(ODD_DUALS).flat_map(|shape| [false, true].map(|back| dual(shape, Elem::Bf16, back))),
    );
    let others = [Elem::F16, Elem::F32].into_iter();
    cases.extend(others.flat_map(|elem| [false, true].map(|back| dual(DUALS[0], elem, back))));
    cases
}

/// q, k, v → o; backward from ō with what the forward saved: o and the log-sum-exp.
fn attention([batch, heads, steps, size]: [usize; 4], elem: Elem, causal: bool, back: bool) -> Case {
    let keys = || (vec![batch, heads, steps, size], Fill::Normal);
    let inputs = vec![(vec![batch, heads, 1, steps, size], Fill::Normal), keys(), keys()];
    let kernel = if causal { models::attention_causal::kernel() } else { models::attention::kernel() };
    let mask = if causal { "-causal" } else { "" };
    let name = format!("attn-{elem}-b{batch}h{heads}s{steps}d{size}{mask}-{}", pass(back));
    let tensors = if back { 8 } else { 4 };
    let bytes = (tensors * elem.bytes().unwrap_or(2) * batch * heads * steps * size) as u64;
    Case { name, group: Group::Attention, work: work(back), kernel, elem, inputs, bytes }
}

/// q, k, v → o of a few new queries, whose time is that of reading k and v.
fn decoding([batch, heads, queries, keys, size]: [usize; 5]) -> Case {
    let (elem, of_keys) = (Elem::Bf16, || (vec![batch, heads, keys, size], Fill::Normal));
    let inputs = vec![(vec![batch, heads, 1, queries, size], Fill::Normal), of_keys(), of_keys()];
    let name = format!("decode-{elem}-b{batch}h{heads}m{queries}n{keys}d{size}-fwd");
    let bytes = (2 * 2 * batch * heads * (queries + keys) * size) as u64;
    Case {
        name,
        group: Group::Attention,
        work: Work::Forward,
        kernel: models::attention::kernel(),
        elem,
        inputs,
        bytes,
    }
}

/// x, δ, A, B, C → y; backward all five gradients from ȳ.
fn dual([batch, steps, heads, size, groups, states]: [usize; 6], elem: Elem, back: bool) -> Case {
    let each = heads / groups;
    let group = || (vec![batch, steps, groups, states], Fill::Normal);
    let x = (vec![batch, steps, groups, each, size], Fill::Normal);
    let inputs = vec![x, (vec![batch, steps, groups, each], STEP), (vec![groups, each], RATE), group(), group()];
    let name = format!("ssd-{elem}-b{batch}s{steps}h{heads}p{size}g{groups}n{states}-{}", pass(back));
    let once = elem.bytes().unwrap_or(2) * batch * steps * (2 * heads * size + 2 * heads + 2 * groups * states);
    let bytes = (if back { 3 * once } else { once }) as u64;
    Case { name, group: Group::Ssd, work: work(back), kernel: models::ssd::kernel(), elem, inputs, bytes }
}

fn pass(back: bool) -> &'static str {
    if back { "bwd" } else { "fwd" }
}

fn work(back: bool) -> Work {
    if back { Work::Backward } else { Work::Forward }
}
