//! Kernels of oplus as operations of candle, against compositions of candle's own operations: on the CPU, or with
//! `OPLUS_TEST_DEVICE=cuda` on a GPU.

mod by_steps;
mod elements;
mod errors;
mod gradients;
mod graph;
mod own;
mod views;

use std::sync::LazyLock;

use candle_core::{DType, Device, Result, Tensor, Var};

/// Where the tests run. A device of candle's is another one each time that it is made.
fn device() -> &'static Device {
    static DEVICE: LazyLock<Device> = LazyLock::new(|| match std::env::var("OPLUS_TEST_DEVICE").as_deref() {
        Ok("cuda") => Device::new_cuda(0).expect("a GPU"),
        _ => Device::Cpu,
    });
    &DEVICE
}

/// Random numbers; the same ones for the same seed.
struct Random(fastrand::Rng);

impl Random {
    fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// A variable of f64 in (−1, 1).
    fn var(&mut self, shape: &[usize]) -> Result<Var> {
        Var::from_tensor(&self.tensor(shape)?)
    }

    /// A tensor of f64 in (−1, 1).
    fn tensor(&mut self, shape: &[usize]) -> Result<Tensor> {
        let elements: Vec<f64> = (0..shape.iter().product()).map(|_| 2.0 * self.0.f64() - 1.0).collect();
        Tensor::from_vec(elements, shape, device())
    }
}

/// The elements as f64.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.to_dtype(DType::F64).and_then(|t| t.flatten_all());
    flat.and_then(|t| t.to_vec1()).expect("a tensor has elements")
}

/// Compares two tensors.
#[track_caller]
fn assert_close(name: &str, ours: &Tensor, theirs: &Tensor, tolerance: f64) {
    assert_eq!(ours.dims(), theirs.dims(), "shape of {name}");
    for (k, (a, b)) in numbers(ours).iter().zip(numbers(theirs)).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{name}[{k}] is {a}, by candle's own operations {b}");
    }
}

/// A loss that depends on every element, each with a weight of its own.
fn loss(outputs: &[&Tensor], seed: u64) -> Result<Tensor> {
    let mut random = Random::new(seed);
    let weighted = |x: &&Tensor| x.to_dtype(DType::F64)?.mul(&random.tensor(x.dims())?)?.sum_all();
    let terms = outputs.iter().map(weighted).collect::<Result<Vec<_>>>()?;
    Tensor::stack(&terms, 0)?.sum_all()
}
