//! A Mamba block: norm, projections, short convolution, selective scan with gate, and back onto the residual stream
//! (Gu and Dao, "Mamba", 2023, figure 3).

use oplus::models::{Mamba, MambaCotangents, MambaOutput, mamba};
use oplus::{Device, Error, Tensor};

use crate::kernels::{
    DecayRates, DecayRatesCotangents, DecayRatesOutput, Norm, NormCotangents, NormOutput, ShortConv,
    ShortConvCotangents, ShortConvOutput, decay_rates, norm, short_conv,
};
use crate::ranks::Ranks;
use crate::tensors::{Linear, add, channels, linear, rows};
use crate::weights::Init;

/// The weights of a block, or their gradients.
pub(crate) struct Block {
    norm: Tensor,
    in_x: Tensor,
    in_z: Tensor,
    conv: [Tensor; 5],
    to_rank: Tensor,
    to_b: Tensor,
    to_c: Tensor,
    to_delta: Tensor,
    delta_bias: Tensor,
    a_log: Tensor,
    skip: Tensor,
    out: Tensor,
}

/// What a block remembers between times: the last three inputs of the convolution, and the states.
#[derive(Clone)]
pub(crate) struct State {
    inputs: [Tensor; 3],
    h: Tensor,
}

/// A block's calls, for the gradient.
pub(crate) struct BlockCall {
    norm: NormOutput,
    x: Linear,
    z: Linear,
    conv: ShortConvOutput,
    rank: Linear,
    delta: Linear,
    b: Linear,
    c: Linear,
    a: DecayRatesOutput,
    scan: MambaOutput,
    out: Linear,
    batch: usize,
}

impl Block {
    /// Random weights: `width` of the stream, twice as many channels, `states` of each, a step size of low rank.
    pub(crate) fn new(init: &mut Init, width: usize, states: usize, layers: usize) -> Result<Block, Error> {
        let (inner, rank) = (2 * width, width.div_ceil(16));
        let a_log: Vec<f32> = (0..inner * states).map(|k| ((k % states + 1) as f32).ln()).collect();
        Ok(Block {
            norm: init.full(1.0, &[width])?,
            in_x: init.matrix(inner, width, 1.0)?,
            in_z: init.matrix(inner, width, 1.0)?,
            conv: [
                init.uniform(0.5, &[inner])?,
                init.uniform(0.5, &[inner])?,
                init.uniform(0.5, &[inner])?,
                init.uniform(0.5, &[inner])?,
                init.full(0.0, &[inner])?,
            ],
            to_rank: init.matrix(rank, inner, 1.0)?,
            to_b: init.matrix(states, inner, 1.0)?,
            to_c: init.matrix(states, inner, 1.0)?,
            to_delta: init.matrix(inner, rank, 1.0)?,
            delta_bias: init.step_sizes(inner)?,
            a_log: Tensor::from_vec(a_log, &[1, inner, states])?.to_device(init.device())?,
            skip: init.full(1.0, &[1, inner])?,
            out: init.matrix(width, inner, 1.0 / (layers as f32).sqrt())?,
        })
    }

    /// All weights, always in the same order.
    pub(crate) fn tensors(&mut self) -> Vec<&mut Tensor> {
        let [w0, w1, w2, w3, bias] = &mut self.conv;
        vec![
            &mut self.norm,
            &mut self.in_x,
            &mut self.in_z,
            w0,
            w1,
            w2,
            w3,
            bias,
            &mut self.to_rank,
            &mut self.to_b,
            &mut self.to_c,
            &mut self.to_delta,
            &mut self.delta_bias,
            &mut self.a_log,
            &mut self.skip,
            &mut self.out,
        ]
    }

    /// Of gradients those to which every rank has its own term; the others are of what scans along time share, whose gradients
    /// are whole.
    pub(crate) fn terms(&mut self) -> Vec<&mut Tensor> {
        vec![
            &mut self.norm,
            &mut self.in_x,
            &mut self.in_z,
            &mut self.to_rank,
            &mut self.to_b,
            &mut self.to_c,
            &mut self.to_delta,
            &mut self.out,
        ]
    }

    /// The stream [B·T, C] after the block, from the state of nothing; of several ranks each has its part of the times.
    pub(crate) fn forward(
        &self,
        stream: &Tensor,
        batch: usize,
        ranks: Option<&Ranks>,
    ) -> Result<(Tensor, BlockCall), Error> {
        let norm = norm(Norm { x: stream.clone(), w: self.norm.clone() })?;
        let (x, z) = (linear(&norm.y, &self.in_x)?, linear(&norm.y, &self.in_z)?);
        let [w0, w1, w2, w3, bias] = self.conv.clone();
        let (all, inner) = (x.y.shape()[0], x.y.shape()[1]);
        let x3d = x.y.reshape(&[batch, all / batch, inner])?;
        let inputs = ShortConv { x: x3d, w0, w1, w2, w3, bias, x1: None, x2: None, x3: None };
        let conv = match ranks {
            None => short_conv(inputs)?,
            Some(ranks) => short_conv::sharded(&ranks.times, "T")(inputs)?,
        };
        let u = conv.u.reshape(&[all, inner])?;
        let rank = linear(&u, &self.to_rank)?;
        let delta = linear(&rank.y, &self.to_delta)?;
        let (b, c) = (linear(&u, &self.to_b)?, linear(&u, &self.to_c)?);
        let a = decay_rates(DecayRates { a_log: self.a_log.clone() })?;
        let inputs = Mamba {
            u: channels(&u, batch)?,
            delta: channels(&delta.y, batch)?,
            a: a.a.clone(),
            b: channels(&b.y, batch)?,
            c: channels(&c.y, batch)?,
            z: channels(&z.y, batch)?,
            skip: Some(self.skip.clone()),
            delta_bias: Some(self.delta_bias.clone()),
            h0: None,
        };
        let scan = match ranks {
            None => mamba(inputs)?,
            Some(ranks) => mamba::sharded(&ranks.times, "T")(inputs)?,
        };
        let out = linear(&rows(&scan.y)?, &self.out)?;
        let after = add(stream, &out.y)?;
        Ok((after, BlockCall { norm, x, z, conv, rank, delta, b, c, a, scan, out, batch }))
    }

    /// The stream [B, C] one time later, from the state that the times before left.
    pub(crate) fn step(&self, stream: &Tensor, state: &State) -> Result<(Tensor, State), Error> {
        let y = norm(Norm { x: stream.clone(), w: self.norm.clone() })?.y;
        let (x, z) = (linear(&y, &self.in_x)?.y, linear(&y, &self.in_z)?.y);
        let ([w0, w1, w2, w3, bias], [x1, x2, x3]) = (self.conv.clone(), state.inputs.clone());
        let inputs = short_conv::Step { x, w0, w1, w2, w3, bias, x1: Some(x1), x2: Some(x2), x3: Some(x3) };
        let conv = short_conv::step(inputs)?;
        let u = conv.u;
        let delta = linear(&linear(&u, &self.to_rank)?.y, &self.to_delta)?.y;
        let (b, c) = (linear(&u, &self.to_b)?.y, linear(&u, &self.to_c)?.y);
        let one = |x: &Tensor| x.reshape(&[x.shape()[0], 1, x.shape()[1]]);
        let scan = mamba::step(mamba::Step {
            u: one(&u)?,
            delta: one(&delta)?,
            a: decay_rates(DecayRates { a_log: self.a_log.clone() })?.a,
            b: one(&b)?,
            c: one(&c)?,
            z: one(&z)?,
            skip: Some(self.skip.clone()),
            delta_bias: Some(self.delta_bias.clone()),
            h0: Some(state.h.clone()),
        })?;
        let y = linear(&scan.y.reshape(u.shape())?, &self.out)?.y;
        Ok((add(stream, &y)?, State { inputs: [conv.x1_last, conv.x2_last, conv.x3_last], h: scan.h_last }))
    }
}

impl BlockCall {
    /// The state after the last time.
    pub(crate) fn state(&self) -> State {
        let inputs = [&self.conv.x1_last, &self.conv.x2_last, &self.conv.x3_last].map(Tensor::clone);
        State { inputs, h: self.scan.h_last.clone() }
    }

    /// The gradients of the stream before the block and of the weights, from that of the stream after it.
    pub(crate) fn backward(&self, after_bar: &Tensor) -> Result<(Tensor, Block), Error> {
        let (y_bar, out) = self.out.backward(after_bar)?;
        let scan = self.scan.backward(MambaCotangents { y: Some(channels(&y_bar, self.batch)?), h_last: None })?;
        let a_log = self.a.backward(DecayRatesCotangents { a: Some(scan.a) })?.a_log;
        let (rank_bar, to_delta) = self.delta.backward(&rows(&scan.delta)?)?;
        let (from_rank, to_rank) = self.rank.backward(&rank_bar)?;
        let (from_b, to_b) = self.b.backward(&rows(&scan.b)?)?;
        let (from_c, to_c) = self.c.backward(&rows(&scan.c)?)?;
        let u_bar = add(&add(&rows(&scan.u)?, &from_rank)?, &add(&from_b, &from_c)?)?;
        let u_bar = u_bar.reshape(self.conv.u.shape())?;
        let conv = self.conv.backward(ShortConvCotangents { u: Some(u_bar), ..Default::default() })?;
        let (from_x, in_x) = self.x.backward(&conv.x.reshape(self.x.y.shape())?)?;
        let (from_z, in_z) = self.z.backward(&rows(&scan.z)?)?;
        let norm = self.norm.backward(NormCotangents { y: Some(add(&from_x, &from_z)?) })?;
        let given = "the block gives skip and bias to the scan";
        let gradients = Block {
            norm: norm.w,
            in_x,
            in_z,
            conv: [conv.w0, conv.w1, conv.w2, conv.w3, conv.bias],
            to_rank,
            to_b,
            to_c,
            to_delta,
            delta_bias: scan.delta_bias.expect(given),
            a_log,
            skip: scan.skip.expect(given),
            out,
        };
        Ok((add(after_bar, &norm.x)?, gradients))
    }
}

/// The state before the first time.
pub(crate) fn nothing(batch: usize, width: usize, states: usize, device: &Device) -> Result<State, Error> {
    let input = Tensor::full(0.0_f32, &[batch, 2 * width], device)?;
    let h = Tensor::full(0.0_f32, &[batch, 1, 2 * width, states], device)?;
    Ok(State { inputs: [input.clone(), input.clone(), input], h })
}
