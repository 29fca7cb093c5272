//! Kernels of oplus as operations of burn, against compositions of burn's own operations: on the CPU in f64, or with
//! `OPLUS_TEST_DEVICE=cuda` on a GPU in f32, the widest type that burn has there.

mod by_steps;
mod elements;
mod errors;
mod gradients;
mod graph;
mod own;
mod views;

use burn::tensor::{DType, Device, Tensor, TensorData};

/// Whether the tests run on a GPU.
fn is_on_gpu() -> bool {
    cfg!(feature = "cuda") && std::env::var("OPLUS_TEST_DEVICE").is_ok_and(|device| device == "cuda")
}

/// Where the tests run.
fn plain_device() -> Device {
    #[cfg(feature = "cuda")]
    if is_on_gpu() {
        return Device::cuda(0);
    }
    Device::flex()
}

/// Where the tests run, with gradients.
fn device() -> Device {
    plain_device().autodiff()
}

/// The widest type of floats there.
fn widest() -> DType {
    if is_on_gpu() { DType::F32 } else { DType::F64 }
}

/// Random numbers; the same ones for the same seed.
struct Random(fastrand::Rng);

impl Random {
    fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// A leaf of the widest type in (−1, 1) that requires a gradient.
    fn leaf<const AXES: usize>(&mut self, shape: [usize; AXES]) -> Tensor<AXES> {
        self.tensor(shape).require_grad()
    }

    /// A tensor of the widest type in (−1, 1).
    fn tensor<const AXES: usize>(&mut self, shape: [usize; AXES]) -> Tensor<AXES> {
        let elements: Vec<f64> = (0..shape.iter().product()).map(|_| 2.0 * self.0.f64() - 1.0).collect();
        Tensor::from_data(TensorData::new(elements, shape), (&device(), widest()))
    }
}

/// The elements as f64.
fn numbers<const AXES: usize>(tensor: &Tensor<AXES>) -> Vec<f64> {
    tensor.clone().into_data().convert::<f64>().try_to_vec::<f64>().expect("a tensor has elements")
}

/// Compares two tensors. The tolerance is for f64; where all is f32, which rounds 5·10⁸ times as much, it is 10⁷ times as large.
#[track_caller]
fn assert_close<const AXES: usize>(name: &str, ours: &Tensor<AXES>, theirs: &Tensor<AXES>, tolerance: f64) {
    let tolerance = if is_on_gpu() && tolerance < 1e-9 { 1e7 * tolerance } else { tolerance };
    assert_eq!(ours.dims(), theirs.dims(), "shape of {name}");
    for (k, (a, b)) in numbers(ours).iter().zip(numbers(theirs)).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{name}[{k}] is {a}, by burn's own operations {b}");
    }
}

/// A loss that depends on every element, each with a weight of its own.
fn loss<const AXES: usize>(output: &Tensor<AXES>, seed: u64) -> Tensor<1> {
    let weights = Random::new(seed).tensor(output.dims());
    (output.clone().cast(widest()) * weights).sum()
}
