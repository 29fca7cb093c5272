//! A language model of bytes: embedding, Mamba blocks, norm, head.

use oplus::{Device, Error, Tensor};

use crate::block::{Block, BlockCall, State, nothing};
use crate::kernels::{
    CrossEntropy, CrossEntropyCotangents, Norm, NormCotangents, OneHot, cross_entropy, norm, one_hot,
};
use crate::ranks::Ranks;
use crate::tensors::{Linear, linear};
use crate::weights::Init;

/// How many different bytes there are.
const BYTES: usize = 256;

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) width: usize,
    pub(crate) layers: usize,
    pub(crate) states: usize,
}

/// The weights of a model, or their gradients.
pub(crate) struct Model {
    sizes: Sizes,
    device: Device,
    embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Tensor,
}

/// The calls of a pass over some bytes.
struct Stream {
    embedded: Linear,
    calls: Vec<BlockCall>,
    after_all: Tensor,
}

impl Model {
    /// A model with random weights.
    pub(crate) fn new(sizes: Sizes, seed: u64, device: &Device) -> Result<Model, Error> {
        let Sizes { width, layers, states } = sizes;
        let mut init = Init::new(seed, device);
        Ok(Model {
            sizes,
            device: device.clone(),
            embedding: init.uniform(1.0, &[width, BYTES])?,
            blocks: (0..layers).map(|_| Block::new(&mut init, width, states, layers)).collect::<Result<_, _>>()?,
            norm: init.full(1.0, &[width])?,
            head: init.matrix(BYTES, width, 0.1)?,
        })
    }

    /// All weights, always in the same order.
    pub(crate) fn tensors(&mut self) -> Vec<&mut Tensor> {
        let blocks = self.blocks.iter_mut().flat_map(Block::tensors);
        [&mut self.embedding, &mut self.norm, &mut self.head].into_iter().chain(blocks).collect()
    }

    /// Of gradients those to which every rank has its own term.
    fn terms(&mut self) -> Vec<&mut Tensor> {
        let blocks = self.blocks.iter_mut().flat_map(Block::terms);
        [&mut self.embedding, &mut self.norm, &mut self.head].into_iter().chain(blocks).collect()
    }

    /// How many numbers the model has learned.
    pub(crate) fn len(&mut self) -> usize {
        self.tensors().iter().map(|tensor| tensor.len()).sum()
    }

    /// The embedding's rows of some bytes, as a product of matrices.
    fn embed(&self, bytes: &[u8]) -> Result<Linear, Error> {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let chosen = one_hot(OneHot { byte: self.indices(bytes)?, all: self.indices(&all)? })?.y;
        linear(&chosen, &self.embedding)
    }

    /// The stream after all blocks, for `batch` sequences of bytes one after the other.
    fn stream(&self, bytes: &[u8], batch: usize, ranks: Option<&Ranks>) -> Result<Stream, Error> {
        let embedded = self.embed(bytes)?;
        let (mut after_all, mut calls) = (embedded.y.clone(), vec![]);
        for block in &self.blocks {
            let (after, call) = block.forward(&after_all, batch, ranks)?;
            after_all = after;
            calls.push(call);
        }
        Ok(Stream { embedded, calls, after_all })
    }

    /// The mean loss in nats of predicting `targets` from `bytes`.
    pub(crate) fn loss(&self, bytes: &[u8], targets: &[u8], batch: usize) -> Result<f32, Error> {
        let stream = self.stream(bytes, batch, None)?.after_all;
        let y = norm(Norm { x: stream, w: self.norm.clone() })?.y;
        let logits = linear(&y, &self.head)?.y;
        Ok(cross_entropy(CrossEntropy { x: logits, target: self.indices(targets)? })?.loss.to_vec::<f32>()?[0])
    }

    /// The loss, and its gradient by all weights. Several ranks have a part of the bytes each, and all get the loss and the
    /// gradient of the whole.
    pub(crate) fn gradient(
        &self,
        bytes: &[u8],
        targets: &[u8],
        batch: usize,
        ranks: Option<&Ranks>,
    ) -> Result<(f32, Model), Error> {
        let Stream { embedded, calls, after_all } = self.stream(bytes, batch, ranks)?;
        let normed = norm(Norm { x: after_all, w: self.norm.clone() })?;
        let logits = linear(&normed.y, &self.head)?;
        let inputs = CrossEntropy { x: logits.y.clone(), target: self.indices(targets)? };
        let loss = match ranks {
            None => cross_entropy(inputs)?,
            Some(ranks) => cross_entropy::sharded(&ranks.rows, "R")(inputs)?,
        };
        let one = Tensor::full(1.0_f32, &[], &self.device)?;
        let logits_bar = loss.backward(CrossEntropyCotangents { loss: Some(one) })?.x;
        let (y_bar, head) = logits.backward(&logits_bar)?;
        let normed_bar = normed.backward(NormCotangents { y: Some(y_bar) })?;
        let (mut stream_bar, mut blocks) = (normed_bar.x, vec![]);
        for call in calls.iter().rev() {
            let (before_bar, gradients) = call.backward(&stream_bar)?;
            stream_bar = before_bar;
            blocks.insert(0, gradients);
        }
        let (_, embedding) = embedded.backward(&stream_bar)?;
        let (sizes, device) = (self.sizes, self.device.clone());
        let mut gradient = Model { sizes, device, embedding, blocks, norm: normed_bar.w, head };
        if let Some(ranks) = ranks {
            ranks.add_up(gradient.terms())?;
        }
        Ok((loss.loss.to_vec::<f32>()?[0], gradient))
    }

    fn indices(&self, bytes: &[u8]) -> Result<Tensor, Error> {
        let indices: Vec<i64> = bytes.iter().map(|&b| i64::from(b)).collect();
        Tensor::from_vec(indices, &[bytes.len()])?.to_device(&self.device)
    }
}

/// A model that has read some text and goes on byte by byte.
pub(crate) struct Decoder<'a> {
    model: &'a Model,
    states: Vec<State>,
    logits: Vec<f32>,
}

impl<'a> Decoder<'a> {
    /// Before any text.
    pub(crate) fn new(model: &'a Model) -> Result<Decoder<'a>, Error> {
        let Sizes { width, states, layers } = model.sizes;
        let nothing = nothing(1, width, states, &model.device)?;
        Ok(Decoder { model, states: vec![nothing; layers], logits: vec![0.0; BYTES] })
    }

    /// Reads the prompt in one pass over time, and keeps the state at its end.
    pub(crate) fn prefill(model: &'a Model, prompt: &[u8]) -> Result<Decoder<'a>, Error> {
        let mut decoder = Decoder::new(model)?;
        if !prompt.is_empty() {
            let stream = model.stream(prompt, 1, None)?;
            decoder.states = stream.calls.iter().map(BlockCall::state).collect();
            decoder.read_out(&stream.after_all.slice(0, prompt.len() - 1..prompt.len())?)?;
        }
        Ok(decoder)
    }

    /// Takes one more byte, by the kernels' one-step forms.
    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Error> {
        let mut stream = self.model.embed(&[byte])?.y;
        for (block, state) in self.model.blocks.iter().zip(&mut self.states) {
            (stream, *state) = block.step(&stream, state)?;
        }
        self.read_out(&stream)
    }

    fn read_out(&mut self, stream: &Tensor) -> Result<(), Error> {
        let y = norm(Norm { x: stream.clone(), w: self.model.norm.clone() })?.y;
        self.logits = linear(&y, &self.model.head)?.y.to_vec()?;
        Ok(())
    }

    /// The unnormalised logarithms of the next byte's probabilities.
    pub(crate) fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// A random next byte; a low temperature prefers the likely ones.
    pub(crate) fn sample(&self, temperature: f32, random: &mut fastrand::Rng) -> u8 {
        let most = self.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = self.logits.iter().map(|x| ((x - most) / temperature).exp()).collect();
        let mut left = random.f32() * weights.iter().sum::<f32>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left <= 0.0
        });
        chosen.unwrap_or(BYTES - 1) as u8
    }
}
