//! The cases of the delta rules, in the shapes of the yardstick.

use oplus::{Elem, Kernel, models};

use super::cases::{Case, Fill, Group, Work};

/// Keys of a length below 1: states stay bounded.
const KEYS: Fill = Fill::Uniform(-0.12, 0.12);
const STEP: Fill = Fill::Uniform(0.0, 1.0);
const LOG_DECAYS: Fill = Fill::Uniform(-1.0, -0.001);

/// Batches, heads, steps, and the size of keys and values.
const SHAPES: [[usize; 4]; 3] = [[8, 16, 4096, 64], [8, 16, 4096, 128], [1, 16, 65_536, 128]];

/// Every rule forward and backward.
pub fn cases() -> Vec<Case> {
    let rules: [(&str, &'static Kernel, Option<bool>); 3] = [
        ("delta", models::delta_rule::kernel(), None),
        ("gated-delta", models::gated_delta_rule::kernel(), Some(false)),
        ("kda", models::kda::kernel(), Some(true)),
    ];
    let of = |shape: [usize; 4]| rules.map(|rule| [false, true].map(|back| case(rule, shape, back)));
    SHAPES.into_iter().flat_map(|shape| of(shape).into_iter().flatten()).collect()
}

/// q, k, v, perhaps log-decays of every time or channel, β → o; backward all gradients from ō.
fn case(
    (name, kernel, decays): (&str, &'static Kernel, Option<bool>),
    [batch, heads, steps, size]: [usize; 4],
    back: bool,
) -> Case {
    let (wide, narrow) = (vec![batch, heads, steps, size], vec![batch, heads, steps]);
    let mut inputs = vec![(wide.clone(), KEYS), (wide.clone(), KEYS), (wide.clone(), Fill::Normal)];
    inputs.extend(decays.map(|channels| (if channels { wide.clone() } else { narrow.clone() }, LOG_DECAYS)));
    inputs.push((narrow, STEP));
    let elements: usize = inputs.iter().map(|(shape, _)| shape.iter().product::<usize>()).sum();
    let output: usize = wide.iter().product();
    let elements = if back { 2 * elements + output } else { elements + output };
    Case {
        name: format!("{name}-bf16-b{batch}h{heads}t{steps}k{size}v{size}-{}", if back { "bwd" } else { "fwd" }),
        group: Group::Delta,
        work: if back { Work::Backward } else { Work::Forward },
        kernel,
        elem: Elem::Bf16,
        inputs,
        bytes: (2 * elements) as u64,
    }
}
