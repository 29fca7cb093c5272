//! A byte-level Mamba in candle that learns a book: embedding, blocks with a gated selective scan, head.
//!
//! `cargo run --release -p oplus-candle --example mamba_in_candle` trains it twice, with the scan by oplus and with the scan as a loop over time
//! of candle's own operations, and draws both losses; `-- --help` lists the options.

#[path = "../../../learning/mod.rs"]
mod learning;
mod model;
mod scan;

use std::error::Error;

use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};

use learning::{Learner, Scan, Sizes};
use model::{Init, Model};

fn main() -> Result<(), Box<dyn Error>> {
    learning::compare("candle", Training::new)
}

/// A model and its optimiser.
struct Training {
    model: Model,
    optimizer: AdamW,
}

impl Training {
    fn new(scan: Scan, sizes: Sizes, rate: f64, random: &mut fastrand::Rng) -> Result<Training, Box<dyn Error>> {
        let mut init = Init::new(random);
        let model = Model::new(&mut init, scan, sizes)?;
        let vars: Vec<Var> = init.vars;
        let params = ParamsAdamW { lr: rate, beta2: 0.99, weight_decay: 0.0, ..Default::default() };
        Ok(Training { model, optimizer: AdamW::new(vars, params)? })
    }
}

impl Learner for Training {
    fn step(&mut self, bytes: &[u8], targets: &[u8], batch: usize) -> Result<f32, Box<dyn Error>> {
        let indices = |bytes: &[u8]| {
            let indices: Vec<u32> = bytes.iter().map(|&b| u32::from(b)).collect();
            Tensor::from_vec(indices, bytes.len(), &Device::Cpu)
        };
        let logits = self.model.forward(&indices(bytes)?, batch)?;
        let loss = loss::cross_entropy(&logits, &indices(targets)?)?;
        self.optimizer.backward_step(&loss)?;
        Ok(loss.to_scalar()?)
    }
}
