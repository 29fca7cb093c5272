//! A language model of bytes: embedding, Mamba blocks, norm, head.

use oplus::tape::{Tape, Var};
use oplus::{Device, Error, Tensor};

use crate::block::{Block, State, nothing};
use crate::kernels::{Norm, OneHot, cross_entropy, norm, one_hot};
use crate::ranks::Ranks;
use crate::tensors::{linear, linear_on};
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

/// The weights of a model, their gradients, or where they are on a tape.
pub(crate) struct Model<W = Tensor> {
    sizes: Sizes,
    device: Device,
    embedding: W,
    blocks: Vec<Block<W>>,
    norm: W,
    head: W,
}

/// A pass over some bytes, on a tape.
struct Pass {
    tape: Tape<'static>,
    /// The weights.
    weights: Model<Var>,
    /// The stream after all blocks.
    after_all: Var,
    /// The state of every block after the last byte.
    states: Vec<State<Var>>,
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

    /// For every byte a row with 1 at its place: times the embedding, the embedding's row.
    fn chosen(&self, bytes: &[u8]) -> Result<Tensor, Error> {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        Ok(one_hot(OneHot { byte: self.indices(bytes)?, all: self.indices(&all)? })?.y)
    }

    /// The stream after all blocks, for `batch` sequences of bytes one after the other.
    fn pass(&self, bytes: &[u8], batch: usize, ranks: Option<&Ranks>) -> Result<Pass, Error> {
        let mut tape = Tape::new();
        let weights = self.map(&mut |weight: &Tensor| tape.input(weight.clone()));
        let chosen = tape.input(self.chosen(bytes)?);
        let mut after_all = linear_on(&mut tape, chosen, weights.embedding)?;
        let mut states = vec![];
        for block in &weights.blocks {
            let (after, state) = block.forward(&mut tape, after_all, (batch, ranks))?;
            after_all = after;
            states.push(state);
        }
        Ok(Pass { tape, weights, after_all, states })
    }

    /// The mean loss in nats of predicting `targets` from `bytes`.
    pub(crate) fn loss(&self, bytes: &[u8], targets: &[u8], batch: usize) -> Result<f32, Error> {
        let mut pass = self.pass(bytes, batch, None)?;
        let loss = pass.loss(self.indices(targets)?, None)?;
        Ok(pass.tape.value(loss).to_vec::<f32>()?[0])
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
        let mut pass = self.pass(bytes, batch, ranks)?;
        let loss = pass.loss(self.indices(targets)?, ranks)?;
        let gradients = pass.tape.backward(loss)?;
        let of = |weight: &Var| gradients.of(*weight).cloned().expect("the loss depends on every weight");
        let mut gradient = pass.weights.map(&mut { of });
        if let Some(ranks) = ranks {
            ranks.add_up(gradient.terms())?;
        }
        Ok((pass.tape.value(loss).to_vec::<f32>()?[0], gradient))
    }

    fn indices(&self, bytes: &[u8]) -> Result<Tensor, Error> {
        let indices: Vec<i64> = bytes.iter().map(|&b| i64::from(b)).collect();
        Tensor::from_vec(indices, &[bytes.len()])?.to_device(&self.device)
    }
}

impl<W> Model<W> {
    /// The model of what `of` makes of each weight.
    fn map<V>(&self, of: &mut impl FnMut(&W) -> V) -> Model<V> {
        Model {
            sizes: self.sizes,
            device: self.device.clone(),
            embedding: of(&self.embedding),
            blocks: self.blocks.iter().map(|block| block.map(of)).collect(),
            norm: of(&self.norm),
            head: of(&self.head),
        }
    }
}

impl Pass {
    /// The mean loss of predicting the targets from the stream; several ranks have a part of the rows each.
    fn loss(&mut self, targets: Tensor, ranks: Option<&Ranks>) -> Result<Var, Error> {
        let Pass { tape, weights, after_all, .. } = self;
        let normed = tape.call(norm::kernel(), &[Some(*after_all), Some(weights.norm)])?[0];
        let logits = linear_on(tape, normed, weights.head)?;
        let inputs = [Some(logits), Some(tape.input(targets))];
        let loss = match ranks {
            None => tape.call(cross_entropy::kernel(), &inputs)?,
            Some(ranks) => tape.call_sharded(cross_entropy::kernel(), &ranks.rows, "R", &inputs)?,
        };
        Ok(loss[0])
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
            let pass = model.pass(prompt, 1, None)?;
            decoder.states = pass.states.iter().map(|state| state.on(&pass.tape)).collect();
            let last = pass.tape.value(pass.after_all).slice(0, prompt.len() - 1..prompt.len())?;
            decoder.read_out(&last)?;
        }
        Ok(decoder)
    }

    /// Takes one more byte, by the kernels' one-step forms.
    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Error> {
        let mut stream = linear(&self.model.chosen(&[byte])?, &self.model.embedding)?;
        for (block, state) in self.model.blocks.iter().zip(&mut self.states) {
            (stream, *state) = block.step(&stream, state)?;
        }
        self.read_out(&stream)
    }

    fn read_out(&mut self, stream: &Tensor) -> Result<(), Error> {
        let y = norm(Norm { x: stream.clone(), w: self.model.norm.clone() })?.y;
        self.logits = linear(&y, &self.model.head)?.to_vec()?;
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
