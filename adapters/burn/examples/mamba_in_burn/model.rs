//! The model: embedding, blocks and head.

use burn::module::{Module, Param};
use burn::tensor::activation::silu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use oplus_burn::Error;

use crate::learning::{Scan, Sizes};
use crate::scan::{self, Inputs};

/// Makes random weights, the same ones for the same seed.
pub(crate) struct Init<'a> {
    pub(crate) random: &'a mut fastrand::Rng,
    pub(crate) device: Device,
}

impl Init<'_> {
    fn of<const AXES: usize>(&mut self, shape: [usize; AXES], one: impl Fn(usize, f32) -> f32) -> Param<Tensor<AXES>> {
        let elements: Vec<f32> = (0..shape.iter().product()).map(|k| one(k, self.random.f32())).collect();
        Param::from_tensor(Tensor::from_data(TensorData::new(elements, shape), &self.device))
    }

    /// Weights [from, to] that keep the size of what they are applied to.
    fn matrix(&mut self, from: usize, to: usize) -> Param<Tensor<2>> {
        let most = (3.0 / from as f32).sqrt();
        self.of([from, to], |_, x| (2.0 * x - 1.0) * most)
    }
}

/// A byte-level language model.
#[derive(Module, Debug)]
pub(crate) struct Model {
    embedding: Param<Tensor<2>>,
    blocks: Vec<Block>,
    norm: Param<Tensor<1>>,
    head: Param<Tensor<2>>,
}

impl Model {
    pub(crate) fn new(init: &mut Init<'_>, sizes: Sizes) -> Model {
        let Sizes { width, layers, .. } = sizes;
        Model {
            embedding: init.of([256, width], |_, x| 2.0 * x - 1.0),
            blocks: (0..layers).map(|_| Block::new(init, sizes)).collect(),
            norm: init.of([width], |_, _| 1.0),
            head: init.matrix(width, 256),
        }
    }

    /// The unnormalised logarithms [B·T, 256] of the next byte's probabilities, for `batch` sequences one after the other.
    pub(crate) fn forward(&self, bytes: Tensor<1, Int>, batch: usize, scan: Scan) -> Result<Tensor<2>, Error> {
        let mut stream = self.embedding.val().select(0, bytes);
        for block in &self.blocks {
            stream = stream.clone() + block.forward(stream, batch, scan)?;
        }
        Ok(norm(stream, &self.norm).matmul(self.head.val()))
    }
}

/// Each row over its root mean square, times w.
fn norm(x: Tensor<2>, w: &Param<Tensor<1>>) -> Tensor<2> {
    let size = (x.clone().square().mean_dim(1) + 1e-5).sqrt();
    x / size * w.val().unsqueeze()
}

/// A Mamba block without the short convolution (Gu and Dao, "Mamba", 2023, figure 3).
#[derive(Module, Debug)]
struct Block {
    norm: Param<Tensor<1>>,
    in_x: Param<Tensor<2>>,
    in_z: Param<Tensor<2>>,
    to_rank: Param<Tensor<2>>,
    to_delta: Param<Tensor<2>>,
    to_b: Param<Tensor<2>>,
    to_c: Param<Tensor<2>>,
    delta_bias: Param<Tensor<2>>,
    a_log: Param<Tensor<3>>,
    skip: Param<Tensor<2>>,
    out: Param<Tensor<2>>,
}

impl Block {
    fn new(init: &mut Init<'_>, Sizes { width, states, .. }: Sizes) -> Block {
        let (inner, rank) = (2 * width, width.div_ceil(16));
        // Step sizes between 0.001 and 0.1, uniform in the logarithm (§3.6).
        let (low, high) = (0.001_f32.ln(), 0.1_f32.ln());
        Block {
            norm: init.of([width], |_, _| 1.0),
            in_x: init.matrix(width, inner),
            in_z: init.matrix(width, inner),
            to_rank: init.matrix(inner, rank),
            to_delta: init.matrix(rank, inner),
            to_b: init.matrix(inner, states),
            to_c: init.matrix(inner, states),
            delta_bias: init.of([1, inner], |_, x| (low + x * (high - low)).exp().exp_m1().ln()),
            a_log: init.of([1, inner, states], |k, _| ((k % states + 1) as f32).ln()),
            skip: init.of([1, inner], |_, _| 1.0),
            out: init.matrix(inner, width),
        }
    }

    /// The sum that the block adds to the stream [B·T, C].
    fn forward(&self, stream: Tensor<2>, batch: usize, scan: Scan) -> Result<Tensor<2>, Error> {
        let x = norm(stream, &self.norm);
        let (u, z) = (silu(x.clone().matmul(self.in_x.val())), x.matmul(self.in_z.val()));
        let delta = u.clone().matmul(self.to_rank.val()).matmul(self.to_delta.val());
        let (b, c) = (u.clone().matmul(self.to_b.val()), u.clone().matmul(self.to_c.val()));
        let [rows, inner] = u.dims();
        // [B·T, D] as [B, 1, D, T]: a view.
        let channels = |x: Tensor<2>| {
            let width = x.dims()[1];
            x.reshape([batch, rows / batch, width]).swap_dims(1, 2).unsqueeze_dim::<4>(1)
        };
        let inputs = Inputs {
            u: channels(u),
            delta: channels(delta),
            a: -self.a_log.val().exp(),
            b: channels(b),
            c: channels(c),
            z: channels(z),
            skip: self.skip.val(),
            delta_bias: self.delta_bias.val(),
        };
        let y = match scan {
            Scan::Oplus => scan::by_oplus(inputs)?,
            Scan::Loop => scan::by_loop(inputs),
        };
        Ok(y.squeeze_dim::<3>(1).swap_dims(1, 2).reshape([rows, inner]).matmul(self.out.val()))
    }
}
