//! The cases of the delta rules, in the shapes of the yardstick.

use oplus::{Elem, Kernel, models};

use super::cases::{Case, Fill, Group, Work};
use crate::check::rules::layers::gated_delta_layer;

/// Keys of a length below 1: states stay bounded.
const KEYS: Fill = Fill::Uniform(-0.12, 0.12);
const STEP: Fill = Fill::Uniform(0.0, 1.0);
const LOG_DECAYS: Fill = Fill::Uniform(-1.0, -0.001);

/// Batches, heads, steps, and the size of keys and values.
const SHAPES: [[usize; 4]; 3] = [[8, 16, 4096, 64], [8, 16, 4096, 128], [1, 16, 65_536, 128]];

/// The shapes whose keys fit the schedule of two keys.
const OF_TWO_KEYS: [[usize; 4]; 2] = [[8, 16, 4096, 64], [1, 16, 65_536, 64]];

/// A rule: its name, its kernel, and its parameters in the sizes of a shape.
type Rule = (&'static str, &'static Kernel, fn([usize; 4]) -> Vec<(Vec<usize>, Fill)>);

/// Every rule forward and backward.
pub fn cases() -> Vec<Case> {
    let rules: [Rule; 3] = [
        ("delta", models::delta_rule::kernel(), |shape| rule(shape, None)),
        ("gated-delta", models::gated_delta_rule::kernel(), |shape| rule(shape, Some(false))),
        ("kda", models::kda::kernel(), |shape| rule(shape, Some(true))),
    ];
    let of_two_keys: Rule = ("rwkv7", models::rwkv7::kernel(), two_keys);
    let one = SHAPES.into_iter().flat_map(|shape| rules.map(|rule| (rule, shape, Elem::Bf16)));
    let two = OF_TWO_KEYS.map(|shape| (of_two_keys, shape, Elem::Bf16));
    let others = [Elem::F16, Elem::F32]
        .into_iter()
        .flat_map(|elem| SHAPES[..2].iter().flat_map(move |shape| rules.map(|rule| (rule, *shape, elem))));
    let of_two_keys = [Elem::F16, Elem::F32].map(|elem| (of_two_keys, OF_TWO_KEYS[0], elem));
    let layer: Rule = ("gated-delta-layer", gated_delta_layer(), with_gate);
    let all = one.chain(two).chain(others).chain(of_two_keys).chain([(layer, SHAPES[0], Elem::Bf16)]);
    all.flat_map(|(rule, shape, elem)| [false, true].map(|back| case(rule, shape, elem, back))).collect()
}

/// q, k, v, perhaps log-decays of every time or channel, and β.
fn rule(shape: [usize; 4], channels: Option<bool>) -> Vec<(Vec<usize>, Fill)> {
    let (wide, narrow) = (shape.to_vec(), shape[..3].to_vec());
    let mut inputs = vec![(wide.clone(), KEYS), (wide.clone(), KEYS), (wide.clone(), Fill::Normal)];
    inputs.extend(channels.map(|channels| (if channels { wide } else { narrow.clone() }, LOG_DECAYS)));
    inputs.push((narrow, STEP));
    inputs
}

/// The parameters of the gated rule, and a gate.
fn with_gate(shape: [usize; 4]) -> Vec<(Vec<usize>, Fill)> {
    let mut inputs = rule(shape, Some(false));
    inputs.push((shape.to_vec(), Fill::Normal));
    inputs
}

/// r, log-decays of every channel, k, v, and the two vectors of RWKV-7.
fn two_keys(shape: [usize; 4]) -> Vec<(Vec<usize>, Fill)> {
    [KEYS, LOG_DECAYS, KEYS, Fill::Normal, KEYS, KEYS].map(|fill| (shape.to_vec(), fill)).to_vec()
}

/// The parameters → o; backward all gradients from ō.
fn case((name, kernel, inputs): Rule, shape: [usize; 4], elem: Elem, back: bool) -> Case {
    let [batch, heads, steps, size] = shape;
    let inputs = inputs(shape);
    let elements: usize = inputs.iter().map(|(shape, _)| shape.iter().product::<usize>()).sum();
    let output: usize = shape.iter().product();
    let elements = if back { 2 * elements + output } else { elements + output };
    Case {
        name: format!("{name}-{elem}-b{batch}h{heads}t{steps}k{size}v{size}-{}", if back { "bwd" } else { "fwd" }),
        group: Group::Delta,
        work: if back { Work::Backward } else { Work::Forward },
        kernel,
        elem,
        inputs,
        bytes: (elem.bytes().unwrap_or(8) * elements) as u64,
    }
}
