//! A Mamba block: norm, projections, short convolution, selective scan with gate, and back onto the residual stream
//! (Gu and Dao, "Mamba", 2023, figure 3).

use oplus::dist::Group;
use oplus::models::mamba;
use oplus::tape::{Tape, Var};
use oplus::{Device, Error, Kernel, Tensor};

use crate::kernels::{DecayRates, Norm, decay_rates, norm, plus, short_conv};
use crate::ranks::Ranks;
use crate::tensors::{add, channels, linear, linear_on, rows};
use crate::weights::Init;

/// The weights of a block, their gradients, or where they are on a tape.
pub(crate) struct Block<W = Tensor> {
    norm: W,
    in_x: W,
    in_z: W,
    conv: [W; 5],
    to_rank: W,
    to_b: W,
    to_c: W,
    to_delta: W,
    delta_bias: W,
    a_log: W,
    skip: W,
    out: W,
}

/// The memory of a block between times: the last three inputs of the convolution, and the states.
#[derive(Clone)]
pub(crate) struct State<T = Tensor> {
    inputs: [T; 3],
    h: T,
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

    /// The stream [B, C] one time later, from the state that the times before left.
    pub(crate) fn step(&self, stream: &Tensor, state: &State) -> Result<(Tensor, State), Error> {
        let y = norm(Norm { x: stream.clone(), w: self.norm.clone() })?.y;
        let (x, z) = (linear(&y, &self.in_x)?, linear(&y, &self.in_z)?);
        let ([w0, w1, w2, w3, bias], [x1, x2, x3]) = (self.conv.clone(), state.inputs.clone());
        let inputs = short_conv::Step { x, w0, w1, w2, w3, bias, x1: Some(x1), x2: Some(x2), x3: Some(x3) };
        let conv = short_conv::step(inputs)?;
        let u = conv.u;
        let delta = linear(&linear(&u, &self.to_rank)?, &self.to_delta)?;
        let (b, c) = (linear(&u, &self.to_b)?, linear(&u, &self.to_c)?);
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
        let y = linear(&scan.y.reshape(u.shape())?, &self.out)?;
        Ok((add(stream, &y)?, State { inputs: [conv.x1_last, conv.x2_last, conv.x3_last], h: scan.h_last }))
    }
}

impl<W> Block<W> {
    /// The block of what `of` makes of each weight, in the order of [`Block::tensors`].
    pub(crate) fn map<V>(&self, of: &mut impl FnMut(&W) -> V) -> Block<V> {
        Block {
            norm: of(&self.norm),
            in_x: of(&self.in_x),
            in_z: of(&self.in_z),
            conv: self.conv.each_ref().map(&mut *of),
            to_rank: of(&self.to_rank),
            to_b: of(&self.to_b),
            to_c: of(&self.to_c),
            to_delta: of(&self.to_delta),
            delta_bias: of(&self.delta_bias),
            a_log: of(&self.a_log),
            skip: of(&self.skip),
            out: of(&self.out),
        }
    }
}

impl Block<Var> {
    /// The stream [B·T, C] after the block, from the state of nothing, and the state after the last time; of several ranks each has
    /// its part of the times.
    pub(crate) fn forward(
        &self,
        tape: &mut Tape<'static>,
        stream: Var,
        (batch, ranks): (usize, Option<&Ranks>),
    ) -> Result<(Var, State<Var>), Error> {
        let times = ranks.map(|ranks| &ranks.times);
        let normed = tape.call(norm::kernel(), &[Some(stream), Some(self.norm)])?[0];
        let (x, z) = (linear_on(tape, normed, self.in_x)?, linear_on(tape, normed, self.in_z)?);
        let (all, inner) = (tape.value(x).shape()[0], tape.value(x).shape()[1]);
        let x = tape.reshape(x, &[batch, all / batch, inner])?;
        let [w0, w1, w2, w3, bias] = self.conv.map(Some);
        let inputs = [Some(x), w0, w1, w2, w3, bias, None, None, None];
        let conv = along_time(tape, short_conv::kernel(), times, &inputs)?;
        let u = tape.reshape(conv[0], &[all, inner])?;
        let rank = linear_on(tape, u, self.to_rank)?;
        let delta = linear_on(tape, rank, self.to_delta)?;
        let (b, c) = (linear_on(tape, u, self.to_b)?, linear_on(tape, u, self.to_c)?);
        let a = tape.call(decay_rates::kernel(), &[Some(self.a_log)])?[0];
        let mut inputs = vec![u, delta, b, c, z];
        for x in &mut inputs {
            *x = channels(tape, *x, batch)?;
        }
        inputs.insert(2, a);
        inputs.extend([self.skip, self.delta_bias]);
        let inputs: Vec<Option<Var>> = inputs.into_iter().map(Some).chain([None]).collect();
        let scan = along_time(tape, mamba::kernel(), times, &inputs)?;
        let y = rows(tape, scan[0])?;
        let y = linear_on(tape, y, self.out)?;
        let after = tape.call(plus::kernel(), &[Some(stream), Some(y)])?[0];
        Ok((after, State { inputs: [conv[1], conv[2], conv[3]], h: scan[1] }))
    }
}

/// A call of a kernel that scans along time, whose times several ranks share.
fn along_time(
    tape: &mut Tape<'static>,
    kernel: &'static Kernel,
    times: Option<&Group>,
    inputs: &[Option<Var>],
) -> Result<Vec<Var>, Error> {
    match times {
        None => tape.call(kernel, inputs),
        Some(group) => tape.call_sharded(kernel, group, "T", inputs),
    }
}

impl State<Var> {
    /// The tensors of a state.
    pub(crate) fn on(&self, tape: &Tape<'static>) -> State {
        let tensor = |var: Var| tape.value(var).clone();
        State { inputs: self.inputs.map(tensor), h: tensor(self.h) }
    }
}

/// The state before the first time.
pub(crate) fn nothing(batch: usize, width: usize, states: usize, device: &Device) -> Result<State, Error> {
    let input = Tensor::full(0.0_f32, &[batch, 2 * width], device)?;
    let h = Tensor::full(0.0_f32, &[batch, 1, 2 * width, states], device)?;
    Ok(State { inputs: [input.clone(), input.clone(), input], h })
}
