//! Kernels of oplus as operations of burn, against compositions of burn's own operations.

mod by_steps;
mod elements;
mod errors;
mod gradients;
mod graph;
mod own;
mod views;

use burn::tensor::{DType, Device, Tensor, TensorData};

/// The CPU, with gradients.
fn device() -> Device {
    Device::flex().autodiff()
}

/// Random numbers; the same ones for the same seed.
struct Random(fastrand::Rng);

impl Random {
    fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// A leaf of f64 in (−1, 1) that requires a gradient.
    fn leaf<const AXES: usize>(&mut self, shape: [usize; AXES]) -> Tensor<AXES> {
        self.tensor(shape).require_grad()
    }

    /// A tensor of f64 in (−1, 1).
    fn tensor<const AXES: usize>(&mut self, shape: [usize; AXES]) -> Tensor<AXES> {
        let elements: Vec<f64> = (0..shape.iter().product()).map(|_| 2.0 * self.0.f64() - 1.0).collect();
        Tensor::from_data(TensorData::new(elements, shape), (&device(), DType::F64))
    }
}

/// The elements as f64.
fn numbers<const AXES: usize>(tensor: &Tensor<AXES>) -> Vec<f64> {
    tensor.clone().into_data().convert::<f64>().try_to_vec::<f64>().expect("a tensor on the CPU has elements")
}

/// Compares two tensors.
#[track_caller]
fn assert_close<const AXES: usize>(name: &str, ours: &Tensor<AXES>, theirs: &Tensor<AXES>, tolerance: f64) {
    assert_eq!(ours.dims(), theirs.dims(), "shape of {name}");
    for (k, (a, b)) in numbers(ours).iter().zip(numbers(theirs)).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{name}[{k}] is {a}, by burn's own operations {b}");
    }
}

/// A loss that depends on every element, each with a weight of its own.
fn loss<const AXES: usize>(output: &Tensor<AXES>, seed: u64) -> Tensor<1> {
    let weights = Random::new(seed).tensor(output.dims());
    (output.clone().cast(DType::F64) * weights).sum()
}
