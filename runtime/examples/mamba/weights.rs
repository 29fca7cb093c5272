//! How weights begin, and how they follow their gradients.

use oplus::{Device, Error, Tensor};

use crate::kernels::{Adam, adam};

/// Makes random weights on a device; the same ones for the same seed.
pub(crate) struct Init {
    random: fastrand::Rng,
    device: Device,
}

impl Init {
    pub(crate) fn new(seed: u64, device: &Device) -> Init {
        Init { random: fastrand::Rng::with_seed(seed), device: device.clone() }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    fn of(&mut self, shape: &[usize], mut one: impl FnMut(f32) -> f32) -> Result<Tensor, Error> {
        let elements: Vec<f32> = (0..shape.iter().product()).map(|_| one(self.random.f32())).collect();
        Tensor::from_vec(elements, shape)?.to_device(&self.device)
    }

    /// A tensor whose elements all have one value.
    pub(crate) fn full(&mut self, value: f32, shape: &[usize]) -> Result<Tensor, Error> {
        self.of(shape, |_| value)
    }

    /// Uniform in (−most, most).
    pub(crate) fn uniform(&mut self, most: f32, shape: &[usize]) -> Result<Tensor, Error> {
        self.of(shape, |x| (2.0 * x - 1.0) * most)
    }

    /// Weights [to, from] that keep the size of what they are applied to, times `gain`.
    pub(crate) fn matrix(&mut self, to: usize, from: usize, gain: f32) -> Result<Tensor, Error> {
        self.uniform(gain * (3.0 / from as f32).sqrt(), &[to, from])
    }

    /// Biases whose softplus is between 0.001 and 0.1, uniform in the logarithm (Mamba, §3.6), as [1, n].
    pub(crate) fn step_sizes(&mut self, n: usize) -> Result<Tensor, Error> {
        let (low, high) = (0.001_f32.ln(), 0.1_f32.ln());
        self.of(&[1, n], |x| (low + x * (high - low)).exp().exp_m1().ln())
    }
}

/// Adam's memory of every weight.
#[derive(Default)]
pub(crate) struct Optimizer {
    steps: i32,
    moments: Vec<(Tensor, Tensor)>,
}

impl Optimizer {
    /// Moves all weights against their gradients.
    pub(crate) fn update(
        &mut self,
        weights: Vec<&mut Tensor>,
        gradients: &[&mut Tensor],
        rate: f32,
    ) -> Result<(), Error> {
        self.steps += 1;
        let device = weights.first().map(|weight| weight.device()).unwrap_or_default();
        let scalar = |x: f32| Tensor::full(x, &[], &device);
        let corrections = (scalar(1.0 - 0.9_f32.powi(self.steps))?, scalar(1.0 - 0.99_f32.powi(self.steps))?);
        let rate = scalar(rate)?;
        for (k, (weight, gradient)) in weights.into_iter().zip(gradients).enumerate() {
            let (shape, flat) = (weight.shape().to_vec(), [weight.len()]);
            if self.moments.len() == k {
                let zero = Tensor::full(0.0_f32, &flat, &device)?;
                self.moments.push((zero.clone(), zero));
            }
            let (m, v) = self.moments[k].clone();
            let next = adam(Adam {
                w: weight.reshape(&flat)?,
                g: gradient.reshape(&flat)?,
                m,
                v,
                rate: rate.clone(),
                c1: corrections.0.clone(),
                c2: corrections.1.clone(),
            })?;
            self.moments[k] = (next.m_next, next.v_next);
            *weight = next.w_next.reshape(&shape)?;
        }
        Ok(())
    }
}
