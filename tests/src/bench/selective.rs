//! The cases of the selective scan.

use oplus::{Elem, models};

use super::cases::{Case, Fill, Group, Work};

const STEP: Fill = Fill::Uniform(0.001, 0.1);
const RATE: Fill = Fill::Uniform(-16.0, -1.0);

/// Batches, channels, states and steps; the last ones have few rows and much time.
const SHAPES: [[usize; 4]; 4] = [[8, 2048, 16, 2048], [8, 1024, 4, 2048], [1, 4096, 16, 65_536], [1, 64, 16, 1 << 20]];

/// Every shape in f32 and bf16: plain, with its gradient, and with bias, softplus and gate.
pub fn cases() -> Vec<Case> {
    let elems = SHAPES.into_iter().flat_map(|shape| [Elem::F32, Elem::Bf16].map(|elem| (shape, elem)));
    let of = |(shape, elem)| [case(shape, elem, false), gradient(shape, elem), case(shape, elem, true)];
    elems.flat_map(of).collect()
}

/// All six gradients from ȳ: u, δ, ȳ, B, C are read, and as much is written but for ȳ.
fn gradient(shape: [usize; 4], elem: Elem) -> Case {
    let [batch, channels, states, steps] = shape;
    let forward = case(shape, elem, false);
    let bytes = (5 * channels + 4 * states) * batch * steps * elem.bytes().unwrap_or(4) + 8 * channels * (states + 1);
    Case { name: forward.name.replace("-fwd", "-bwd"), work: Work::Backward, bytes: bytes as u64, ..forward }
}

/// u, δ, A, B, C, \[z,\] D \[, bias\] → y.
fn case([batch, channels, states, steps]: [usize; 4], elem: Elem, gated: bool) -> Case {
    let row = || vec![batch, 1, channels, steps];
    let state = || (vec![batch, 1, states, steps], Fill::Normal);
    let channel = || (vec![1, channels], Fill::Normal);
    let mut inputs = vec![(row(), Fill::Normal), (row(), STEP), (vec![1, channels, states], RATE), state(), state()];
    if gated {
        inputs.push((row(), Fill::Normal));
    }
    inputs.push(channel());
    if gated {
        inputs.push(channel());
    }
    let kernel = if gated { models::mamba::kernel() } else { models::selective_scan::kernel() };
    let suffix = if gated { "-z-softplus" } else { "" };
    let name = format!("s6-{elem}-b{batch}d{channels}n{states}l{steps}{suffix}-fwd");
    let rows = batch * channels * steps * if gated { 4 } else { 3 } + 2 * batch * states * steps;
    let bytes = (rows * elem.bytes().unwrap_or(4) + 4 * channels * (states + 1)) as u64;
    Case { name, group: Group::S6, work: Work::Forward, kernel, elem, inputs, bytes }
}
