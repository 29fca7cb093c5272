//! A byte-level Mamba in candle that learns a book: embedding, blocks with a gated selective scan, head.
//!
//! `cargo run --release -p oplus-candle --example mamba_in_candle` trains it twice, with the scan by oplus and with the scan as a loop over time
//! of candle's own operations, and draws both losses; `-- --help` lists the options. With `--features cuda` it trains on a GPU by
//! `-- --device cuda`.

#[path = "../../../learning/mod.rs"]
mod learning;
mod model;
mod scan;

use std::error::Error;

use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};

use learning::{Learner, Place, Plan};
use model::{Init, Model};

fn main() -> Result<(), Box<dyn Error>> {
    learning::compare("candle", Training::new)
}

/// A model and its optimiser.
struct Training {
    model: Model,
    optimizer: AdamW,
    device: Device,
}

impl Training {
    fn new(plan: &Plan, random: &mut fastrand::Rng) -> Result<Training, Box<dyn Error>> {
        let Plan { scan, sizes, rate, .. } = *plan;
        let device = match plan.device {
            Place::Cpu => Device::Cpu,
            Place::Cuda => Device::new_cuda_with_stream(0)?,
        };
        let mut init = Init::new(random, device.clone());
        let model = Model::new(&mut init, scan, sizes)?;
        let vars: Vec<Var> = init.vars;
        let params = ParamsAdamW { lr: rate, beta2: 0.99, weight_decay: 0.0, ..Default::default() };
        Ok(Training { model, optimizer: AdamW::new(vars, params)?, device })
    }
}

impl Learner for Training {
    fn step(&mut self, bytes: &[u8], targets: &[u8], batch: usize) -> Result<f32, Box<dyn Error>> {
        let indices = |bytes: &[u8]| {
            let indices: Vec<u32> = bytes.iter().map(|&b| u32::from(b)).collect();
            Tensor::from_vec(indices, bytes.len(), &self.device)
        };
        let logits = self.model.forward(&indices(bytes)?, batch)?;
        let loss = loss::cross_entropy(&logits, &indices(targets)?)?;
        self.optimizer.backward_step(&loss)?;
        Ok(loss.to_scalar()?)
    }
}
