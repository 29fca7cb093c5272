//! A byte-level Mamba in burn that learns a book: embedding, blocks with a gated selective scan, head.
//!
//! `cargo run --release -p oplus-burn --example mamba_in_burn` trains it twice, with the scan by oplus and with the scan as a loop over time
//! of burn's own operations, and draws both losses; `-- --help` lists the options. With `--features cuda` it trains on a GPU by
//! `-- --device cuda`.

#[path = "../../../learning/mod.rs"]
mod learning;
mod model;
mod scan;

use std::error::Error;

use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};

use learning::{Learner, Place, Plan, Scan};
use model::{Init, Model};

fn main() -> Result<(), Box<dyn Error>> {
    learning::compare("burn", Training::new)
}

/// A model and its optimiser.
struct Training {
    /// It is there but while the optimiser has it.
    model: Option<Model>,
    scan: Scan,
    optimizer: ModuleOptimizer,
    rate: f64,
    device: Device,
}

impl Training {
    fn new(plan: &Plan, random: &mut fastrand::Rng) -> Result<Training, Box<dyn Error>> {
        let Plan { scan, sizes, rate, .. } = *plan;
        let device = device(plan.device)?.autodiff();
        let model = Some(Model::new(&mut Init { random, device: device.clone() }, sizes));
        let optimizer = AdamWConfig::new().with_beta_2(0.99).with_weight_decay(0.0).init();
        Ok(Training { model, scan, optimizer, rate, device })
    }
}

/// A device of burn's.
fn device(place: Place) -> Result<Device, Box<dyn Error>> {
    match place {
        Place::Cpu => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        Place::Cuda => Ok(Device::cuda(0)),
        #[cfg(not(feature = "cuda"))]
        Place::Cuda => Err("this program was built without the feature `cuda`".into()),
    }
}

impl Learner for Training {
    fn step(&mut self, bytes: &[u8], targets: &[u8], batch: usize) -> Result<f32, Box<dyn Error>> {
        let model = self.model.take().ok_or("an earlier step has failed")?;
        let indices = |bytes: &[u8]| {
            let indices: Vec<i64> = bytes.iter().map(|&b| i64::from(b)).collect();
            Tensor::<1, Int>::from_data(TensorData::new(indices, [bytes.len()]), &self.device)
        };
        let logits = model.forward(indices(bytes), batch, self.scan)?;
        let loss = -log_softmax(logits, 1).gather(1, indices(targets).unsqueeze_dim::<2>(1)).mean();
        let value = loss.clone().into_scalar::<f32>();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimizer.step(self.rate, model, gradients));
        Ok(value)
    }
}
