//! The cases of other recurrences of matrices. The yardstick has none of them: they tell whether what was written for the
//! state-space dual serves them too.

use oplus::{Elem, Kernel, models};

use super::cases::{Case, Fill, Group, Work};

const LOG_DECAYS: Fill = Fill::Uniform(-0.1, -0.001);

/// A model at a shape.
struct Model {
    name: String,
    elem: Elem,
    kernel: &'static Kernel,
    inputs: Vec<(Vec<usize>, Fill)>,
    /// Elements of the output.
    output: usize,
}

/// Every model forward and backward, in `bf16`; retention and gated linear attention also in `f16` and `f32`, linear attention in `f16`.
pub fn cases() -> Vec<Case> {
    let (retained, gated) = ([8, 32, 2048, 64, 64], [8, 16, 2048, 64, 64]);
    let keyed = [
        ("retention", models::retention::kernel(), retained, Some(vec![32])),
        // More keys than a block sums over.
        ("retention", models::retention::kernel(), [8, 4, 2048, 256, 512], Some(vec![4])),
        ("linear-attention", models::linear_attention::kernel(), [8, 16, 4096, 128, 64], None),
        // Widths that end in the middle of a part, and the next multiple.
        ("linear-attention", models::linear_attention::kernel(), [8, 16, 2048, 64, 65], None),
        ("linear-attention", models::linear_attention::kernel(), [8, 16, 2048, 64, 80], None),
        ("linear-attention", models::linear_attention::kernel(), [8, 16, 2048, 64, 128], None),
        ("gla", models::gated_linear_attention::kernel(), gated, Some(vec![8, 16, 2048, 64])),
        ("gla", models::gated_linear_attention::kernel(), [8, 16, 2048, 64, 128], Some(vec![8, 16, 2048, 64])),
        ("gla", models::gated_linear_attention::kernel(), [8, 4, 2048, 256, 512], Some(vec![8, 4, 2048, 256])),
    ];
    let of = |(name, kernel, shape, decays)| model(name, (kernel, Elem::Bf16), shape, decays);
    let models = keyed.into_iter().map(of).chain([128, 256].map(|states| mamba2([8, 2048, 80, 64, states])));
    let retention = [Elem::F16, Elem::F32]
        .map(|elem| model("retention", (models::retention::kernel(), elem), retained, Some(vec![32])));
    // As many keys and values as a block of the third sweep takes.
    let deepest = [Elem::Bf16, Elem::F16].map(|elem| {
        model("linear-attention", (models::linear_attention::kernel(), elem), [8, 16, 2048, 128, 128], None)
    });
    let of_channels = |elem, shape: [usize; 5]| {
        let kernel = (models::gated_linear_attention::kernel(), elem);
        model("gla", kernel, shape, Some(shape[..4].to_vec()))
    };
    let deepest_of_channels = [Elem::Bf16, Elem::F16, Elem::F32]
        .into_iter()
        .flat_map(|elem| [64, 128].map(|values| of_channels(elem, [8, 16, 2048, 128, values])));
    let gated = [Elem::F16, Elem::F32]
        .into_iter()
        .flat_map(|elem| [64, 128].map(|values| of_channels(elem, [8, 16, 2048, 64, values])));
    models
        .chain(retention)
        .chain(deepest)
        .chain(gated)
        .chain(deepest_of_channels)
        .flat_map(|model| [false, true].map(|back| case(&model, back)))
        .collect()
}

/// q, k, v and perhaps log-decays → o.
fn model(
    name: &str,
    (kernel, elem): (&'static Kernel, Elem),
    [batch, heads, steps, keys, values]: [usize; 5],
    decays: Option<Vec<usize>>,
) -> Model {
    let of = |width: usize| (vec![batch, heads, steps, width], Fill::Normal);
    let mut inputs = vec![of(keys), of(keys), of(values)];
    inputs.extend(decays.map(|shape| (shape, LOG_DECAYS)));
    let name = format!("{name}-{elem}-b{batch}h{heads}t{steps}k{keys}v{values}");
    Model { name, elem, kernel, inputs, output: batch * heads * steps * values }
}

/// x, δ, A, B, C, z → y, in one group.
fn mamba2([batch, steps, heads, size, states]: [usize; 5]) -> Model {
    let x = || (vec![batch, steps, 1, heads, size], Fill::Normal);
    let group = || (vec![batch, steps, 1, states], Fill::Normal);
    let step = (vec![batch, steps, 1, heads], Fill::Uniform(-2.0, -1.0));
    let rate = (vec![1, heads], Fill::Uniform(-1.5, -0.5));
    let name = format!("mamba2-bf16-b{batch}s{steps}h{heads}p{size}n{states}");
    let inputs = vec![x(), step, rate, group(), group(), x()];
    Model { name, elem: Elem::Bf16, kernel: models::mamba2::kernel(), inputs, output: batch * steps * heads * size }
}

/// Forward, or all gradients from the output's cotangent.
fn case(model: &Model, back: bool) -> Case {
    let inputs: usize = model.inputs.iter().map(|(shape, _)| shape.iter().product::<usize>()).sum();
    let elements = if back { 2 * inputs + model.output } else { inputs + model.output };
    Case {
        name: format!("{}-{}", model.name, if back { "bwd" } else { "fwd" }),
        group: Group::Linear,
        work: if back { Work::Backward } else { Work::Forward },
        kernel: model.kernel,
        elem: model.elem,
        inputs: model.inputs.clone(),
        bytes: (model.elem.bytes().unwrap_or(2) * elements) as u64,
    }
}
