//! The model: embedding, blocks and head.

use candle_core::{Device, Result, Tensor, Var};

use crate::learning::{Scan, Sizes};
use crate::scan::{self, Inputs};

/// Makes random weights, the same ones for the same seed, and remembers them.
pub(crate) struct Init<'a> {
    random: &'a mut fastrand::Rng,
    device: Device,
    pub(crate) vars: Vec<Var>,
}

impl<'a> Init<'a> {
    pub(crate) fn new(random: &'a mut fastrand::Rng, device: Device) -> Init<'a> {
        Init { random, device, vars: vec![] }
    }

    fn of(&mut self, shape: &[usize], one: impl Fn(usize, f32) -> f32) -> Result<Tensor> {
        let elements: Vec<f32> = (0..shape.iter().product()).map(|k| one(k, self.random.f32())).collect();
        let var = Var::from_vec(elements, shape, &self.device)?;
        self.vars.push(var.clone());
        Ok(var.into_inner())
    }

    /// Weights [from, to] that keep the size of what they are applied to.
    fn matrix(&mut self, from: usize, to: usize) -> Result<Tensor> {
        let most = (3.0 / from as f32).sqrt();
        self.of(&[from, to], |_, x| (2.0 * x - 1.0) * most)
    }
}

/// A byte-level language model.
pub(crate) struct Model {
    embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Tensor,
}

impl Model {
    pub(crate) fn new(init: &mut Init<'_>, scan: Scan, sizes: Sizes) -> Result<Model> {
        let Sizes { width, layers, .. } = sizes;
        Ok(Model {
            embedding: init.of(&[256, width], |_, x| 2.0 * x - 1.0)?,
            blocks: (0..layers).map(|_| Block::new(init, scan, sizes)).collect::<Result<_>>()?,
            norm: init.of(&[width], |_, _| 1.0)?,
            head: init.matrix(width, 256)?,
        })
    }

    /// The unnormalised logarithms [B·T, 256] of the next byte's probabilities, for `batch` sequences one after the other.
    pub(crate) fn forward(&self, bytes: &Tensor, batch: usize) -> Result<Tensor> {
        let mut stream = self.embedding.index_select(bytes, 0)?;
        for block in &self.blocks {
            stream = (&stream + block.forward(&stream, batch)?)?;
        }
        norm(&stream, &self.norm)?.matmul(&self.head)
    }
}

/// Each row over its root mean square, times w.
fn norm(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let size = (x.sqr()?.mean_keepdim(1)? + 1e-5)?.sqrt()?;
    x.broadcast_div(&size)?.broadcast_mul(w)
}

/// A Mamba block without the short convolution (Gu and Dao, "Mamba", 2023, figure 3).
struct Block {
    scan: Scan,
    norm: Tensor,
    in_x: Tensor,
    in_z: Tensor,
    to_rank: Tensor,
    to_delta: Tensor,
    to_b: Tensor,
    to_c: Tensor,
    delta_bias: Tensor,
    a_log: Tensor,
    skip: Tensor,
    out: Tensor,
}

impl Block {
    fn new(init: &mut Init<'_>, scan: Scan, Sizes { width, states, .. }: Sizes) -> Result<Block> {
        let (inner, rank) = (2 * width, width.div_ceil(16));
        // Step sizes between 0.001 and 0.1, uniform in the logarithm (§3.6).
        let (low, high) = (0.001_f32.ln(), 0.1_f32.ln());
        Ok(Block {
            scan,
            norm: init.of(&[width], |_, _| 1.0)?,
            in_x: init.matrix(width, inner)?,
            in_z: init.matrix(width, inner)?,
            to_rank: init.matrix(inner, rank)?,
            to_delta: init.matrix(rank, inner)?,
            to_b: init.matrix(inner, states)?,
            to_c: init.matrix(inner, states)?,
            delta_bias: init.of(&[1, inner], |_, x| (low + x * (high - low)).exp().exp_m1().ln())?,
            a_log: init.of(&[1, inner, states], |k, _| ((k % states + 1) as f32).ln())?,
            skip: init.of(&[1, inner], |_, _| 1.0)?,
            out: init.matrix(inner, width)?,
        })
    }

    /// The sum that the block adds to the stream [B·T, C].
    fn forward(&self, stream: &Tensor, batch: usize) -> Result<Tensor> {
        let x = norm(stream, &self.norm)?;
        let (u, z) = (x.matmul(&self.in_x)?, x.matmul(&self.in_z)?);
        let u = candle_nn::ops::silu(&u)?;
        let delta = u.matmul(&self.to_rank)?.matmul(&self.to_delta)?;
        let (b, c) = (u.matmul(&self.to_b)?, u.matmul(&self.to_c)?);
        // [B·T, D] as [B, 1, D, T]: a view.
        let channels = |x: &Tensor| x.reshape((batch, (), x.dim(1)?))?.transpose(1, 2)?.unsqueeze(1);
        let inputs = Inputs {
            u: channels(&u)?,
            delta: channels(&delta)?,
            a: self.a_log.exp()?.neg()?,
            b: channels(&b)?,
            c: channels(&c)?,
            z: channels(&z)?,
            skip: self.skip.clone(),
            delta_bias: self.delta_bias.clone(),
        };
        let y = match self.scan {
            Scan::Oplus => scan::by_oplus(inputs)?,
            Scan::Loop => scan::by_loop(inputs)?,
        };
        y.squeeze(1)?.transpose(1, 2)?.reshape(u.shape())?.matmul(&self.out)
    }
}
