//! The delta rules, and packed sequences with states of their own, by the rule of flash-linear-attention: keys of length 1, steps between 0 and
//! 1, and decays of a sigmoid, against the CPU in `f64`.

use oplus::{Device, Elem, Kernel, Tensor, models};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar;

use super::gated::{ending_delta_rule, packed_delta_rule};
use super::layers::{gated_delta_layer, gated_kda_layer, normed_delta_layer};
use super::linear::{RULE, judge_by};
use super::{floats, numbers, tensor};
use crate::check::CheckError;
use crate::check::case::Extent;
use crate::check::oracle::Agreement;
use crate::check::scenario::Scenario;

/// A function that gives a model's kernel.
type Get = fn() -> &'static Kernel;

/// A model at a shape: batch, times, heads, keys, values.
#[derive(Clone, Copy)]
pub struct Subject {
    name: &'static str,
    kernel: Get,
    elem: Elem,
    sizes: [usize; 5],
}

/// The models and layers, and their kernels.
const MODELS: [(&str, Get); 11] = [
    ("delta_rule", models::delta_rule::kernel),
    ("gated_delta_rule", models::gated_delta_rule::kernel),
    ("kda", models::kda::kernel),
    ("rwkv7", models::rwkv7::kernel),
    ("gated_delta_layer", gated_delta_layer),
    ("normed_delta_layer", normed_delta_layer),
    ("gated_kda_layer", gated_kda_layer),
    ("ending_delta_rule", ending_delta_rule::kernel),
    ("packed_delta_rule", packed_delta_rule::kernel),
    ("monoid_attention_packed_states", models::monoid_attention_packed_states::kernel),
    ("gated_linear_attention_packed_states", models::gated_linear_attention_packed_states::kernel),
];

/// The relative root mean square of an error in `f32`.
const SINGLE_RULE: f64 = 0.001;
/// The bounds of gradients in 16 bits of a rule that is only read at its end, as flash-linear-attention's tests have them for its gated delta
/// rule: of most gradients, and of those of decays and steps, whose terms cancel.
const ENDING_RULES: [f64; 2] = [0.008, 0.02];
/// That of gradients through a norm in 16 bits: what would scale a whole readout cancels in them.
const NORMED_RULE: f64 = 2.0 * RULE;

/// All scenarios of delta rules.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let shapes = [[1, 63, 1, 64, 64], [2, 500, 3, 60, 60], [1, 1024, 2, 128, 128], [2, 1000, 2, 100, 64]];
    let elems: &[Elem] = if extent == Extent::Quick { &[Elem::Bf16] } else { &[Elem::Bf16, Elem::F16, Elem::F32] };
    let mut all: Vec<Scenario> = vec![];
    for ((name, kernel), elem) in MODELS.into_iter().flat_map(|model| elems.iter().map(move |elem| (model, *elem))) {
        let shapes = if elem == Elem::Bf16 || extent == Extent::Long { &shapes[..] } else { &shapes[1..3] };
        for sizes in shapes.iter().copied() {
            let subject = Subject { name, kernel, elem, sizes };
            let [b, t, h, k, v] = sizes;
            let title = format!("rules/delta {name} {elem} {b}x{t}x{h}x{k}x{v}");
            all.push(Scenario::new(title, move |world| subject.check(&world.device()?)));
        }
    }
    all
}

impl Subject {
    /// Runs forward and backward and compares.
    ///
    /// # Errors
    /// [`CheckError::Wrong`] when the error is larger than the rule allows; those of the device.
    pub fn check(&self, device: &Device) -> Result<Agreement, CheckError> {
        let program = (self.kernel)().program()?;
        let (given, bars) = self.given(program);
        let found = self.run(program, (&given, &bars), device, false)?;
        let wanted = self.run(program, (&given, &bars), &Device::Cpu, true)?;
        let mut all = Agreement::default();
        for ((name, wanted), (_, found)) in wanted.iter().zip(&found) {
            let worst = judge_by(self.rule(name), &format!("{} of {}", name, self.name), found, wanted)?;
            all = Agreement { worst: all.worst.max(worst), compared: all.compared + wanted.len(), unbounded: 0 };
        }
        Ok(all)
    }

    /// The relative root mean square that an error of an output or gradient may have.
    fn rule(&self, output: &str) -> f64 {
        let [of_most, of_rates] = ENDING_RULES;
        match (self.elem, self.name) {
            (Elem::F32, _) => SINGLE_RULE,
            (_, "normed_delta_layer") => NORMED_RULE,
            (_, "ending_delta_rule") if matches!(output, "g.bar" | "beta.bar") => of_rates,
            (_, "ending_delta_rule") if output.ends_with(".bar") => of_most,
            _ => RULE,
        }
    }

    fn shape(&self, program: &Program, axes: &[Axis]) -> Vec<usize> {
        let sequences = self.offsets().len() - 1;
        let size = |axis: &Axis| match program.axis_name(*axis) {
            "S" => sequences,
            name => match ["B", "T", "H", "K", "V"].iter().position(|own| *own == name) {
                Some(place) => self.sizes[place],
                None => sequences + 1,
            },
        };
        axes.iter().map(size).collect()
    }

    /// Where packed sequences begin, and where the last one ends: of several lengths, one of them 0. Some times are in no sequence.
    fn offsets(&self) -> [usize; 6] {
        let t = self.sizes[1];
        [t / 9, t / 7, t / 3, t / 3, t / 2 + 1, t - t / 11]
    }

    /// Random inputs, and cotangents of all outputs.
    fn given(&self, program: &Program) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let mut rng = Rng::new(self.sizes[1] as u64);
        // Of a state that is only read at its end decays are so weak that it keeps something of all times.
        let strength = if self.name == "ending_delta_rule" { 8.0 / self.sizes[1].max(8) as f64 } else { 1.0 };
        let mut of = |name: &str, elem: Elem, axes: &[Axis]| {
            let shape = self.shape(program, axes);
            if !elem.is_float() {
                return self.offsets().map(|offset| offset as f64).to_vec();
            }
            let mut all = numbers(elem, shape.iter().product(), &mut rng);
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            match name {
                "beta" => all.iter_mut().for_each(|x| *x = sigmoid(*x)),
                "g" | "w" => all.iter_mut().for_each(|x| *x = strength * sigmoid(*x).ln()),
                "k" | "a" | "b" => all.chunks_mut(shape[shape.len() - 1]).for_each(unit),
                _ => {}
            }
            all.iter_mut().for_each(|x| *x = scalar::round(elem, *x));
            all
        };
        let params = program.params.iter().map(|p| of(&p.name, p.elem.in_call(self.elem), &p.axes)).collect();
        let bars = program.outputs.iter().map(|o| of("", o.elem.in_call(self.elem), &o.axes)).collect();
        (params, bars)
    }

    /// The outputs and the gradients by name, in the call's type or in `f64`.
    fn run(
        &self,
        program: &Program,
        (given, bars): (&[Vec<f64>], &[Vec<f64>]),
        device: &Device,
        exact: bool,
    ) -> Result<Vec<(String, Vec<f64>)>, CheckError> {
        let place = |elem: Elem, axes: &[Axis], numbers: &Vec<f64>| {
            let elem = match exact && elem.is_float() {
                true => Elem::F64,
                false => elem.in_call(self.elem),
            };
            tensor(elem, &self.shape(program, axes), numbers, device)
        };
        let inputs = program.params.iter().zip(given).map(|(p, numbers)| place(p.elem, &p.axes, numbers));
        let inputs: Vec<Tensor> = inputs.collect::<Result<_, _>>()?;
        let (outputs, call) = (self.kernel)().call(&inputs.iter().map(Some).collect::<Vec<_>>())?;
        let cotangents = program.outputs.iter().zip(bars).map(|(o, numbers)| place(o.elem, &o.axes, numbers));
        let cotangents: Vec<Tensor> = cotangents.collect::<Result<_, _>>()?;
        let gradients = (self.kernel)().backward(&call, &cotangents.iter().map(Some).collect::<Vec<_>>())?;
        let outputs = program.outputs.iter().map(|o| o.name.clone()).zip(outputs);
        let names = program.params.iter().map(|p| format!("{}.bar", p.name));
        let gradients = names.zip(gradients).filter_map(|(name, gradient)| Some((name, gradient?)));
        outputs.chain(gradients).map(|(name, tensor)| Ok((name, floats(&tensor)?))).collect()
    }
}

/// A vector divided by its length.
fn unit(vector: &mut [f64]) {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
    vector.iter_mut().for_each(|x| *x /= length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_follows_the_rule_on_a_cpu() {
        for (name, kernel) in MODELS {
            let subject = Subject { name, kernel, elem: Elem::Bf16, sizes: [1, 33, 2, 6, 5] };
            let agreement = subject.check(&Device::Cpu).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(agreement.compared > 0 && agreement.worst > 0.0, "{name}");
        }
    }
}
