//! A call as part of burn's graph.
//!
//! A step of burn has one output; a kernel has several. *Tokens* of one element carry the graph, a cell carries the numbers:
//!
//! ```text
//! x0 → token → token → token of the call ─→ y0
//!        x1 ┘     x2 ┘                   └→ y1
//! ```
//!
//! `backward` goes this way back. An output puts its cotangent into the cell. The token of the call, which comes after all outputs that
//! the loss depends on, runs the gradient once; each token then hands out the gradient of its input. burn goes through a graph once.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::{DispatchTensor, Flex};
use oplus::Kernel;

use crate::memory::{Made, Saved, is_float, token};
use crate::tensors::{AutodiffTensor, Inputs};

/// A kernel, however its owner keeps it.
pub(crate) type SharedKernel = Arc<dyn Deref<Target = Kernel> + Send + Sync>;

/// The outputs of a call as part of the graph of its inputs.
pub(crate) fn record(kernel: SharedKernel, mut inputs: Inputs, made: Made) -> Vec<DispatchTensor> {
    let Made { outputs, saved } = made;
    let run = Mutex::new(Run { cotangents: vec![None; outputs.len()], gradients: vec![] });
    let tracked = std::mem::take(&mut inputs.tracked);
    let wanted = (0..saved.inputs()).map(|k| tracked.iter().any(|(at, _)| *at == k)).collect();
    let call = Recorded(Arc::new(Cell { kernel, saved, wanted, run }));
    let token = call.tokens(tracked);
    let output = |(k, output): (usize, FlexTensor)| match is_float(&output) {
        true => inputs.tensor(call.output(&token, k, output)),
        false => inputs.constant(output),
    };
    outputs.into_iter().enumerate().map(output).collect()
}

/// A call that has been made.
#[derive(Clone)]
struct Recorded(Arc<Cell>);

struct Cell {
    kernel: SharedKernel,
    saved: Saved,
    /// For each input, whether its gradient is asked for.
    wanted: Vec<bool>,
    run: Mutex<Run>,
}

/// The numbers of `backward`.
struct Run {
    /// By output, until the gradient has run.
    cotangents: Vec<Option<FlexTensor>>,
    /// By input, from then on.
    gradients: Vec<Option<FlexTensor>>,
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorded").field(&self.0.kernel.name()).finish()
    }
}

impl Recorded {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.0.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of the call: the last of a chain to which each token adds an input.
    fn tokens(&self, tracked: Vec<(usize, AutodiffTensor)>) -> AutodiffTensor {
        let last = tracked.len().saturating_sub(1);
        let mut before = AutodiffTensor::new(token());
        for (place, (input, tensor)) in tracked.into_iter().enumerate() {
            let state = TokenState { call: self.clone(), input, runs_gradient: place == last };
            before = step(Token, [before.node(), tensor.node()], state, token());
        }
        before
    }

    /// An output as a tensor behind the token of the call.
    fn output(&self, token: &AutodiffTensor, index: usize, made: FlexTensor) -> AutodiffTensor {
        step(Output, [token.node()], (self.clone(), index), made)
    }

    /// Runs the gradient on the cotangents that have come in.
    fn differentiate(&self) {
        let mut run = self.run();
        let cotangents = std::mem::take(&mut run.cotangents);
        match self.0.saved.gradient(&self.0.kernel, &cotangents, &self.0.wanted) {
            Ok(gradients) => run.gradients = gradients,
            Err(error) => panic!("the gradient of kernel `{}`: {error}", self.0.kernel.name()),
        }
    }
}

/// A step of the graph with its output.
fn step<T, const N: usize>(backward: T, parents: [NodeGuard; N], state: T::State, output: FlexTensor) -> AutodiffTensor
where
    T: Backward<Flex, N>,
{
    match backward.prepare::<NoCheckpointing>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

/// The step of an output.
#[derive(Debug)]
struct Output;

impl Backward<Flex, 1> for Output {
    type State = (Recorded, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let cotangent = gradients.consume::<Flex>(&ops.node);
        let (call, index) = ops.state;
        call.run().cotangents[index] = Some(cotangent);
        if let [Some(parent)] = ops.parents {
            gradients.register::<Flex>(parent.id, token());
        }
    }
}

/// The step of a token.
#[derive(Debug)]
struct Token;

#[derive(Clone, Debug)]
struct TokenState {
    call: Recorded,
    /// The input that it adds.
    input: usize,
    /// Whether it is the token of the call.
    runs_gradient: bool,
}

impl Backward<Flex, 2> for Token {
    type State = TokenState;

    fn backward(self, ops: Ops<TokenState, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let TokenState { call, input, runs_gradient } = ops.state;
        if runs_gradient {
            call.differentiate();
        }
        let [before, parent] = ops.parents;
        if let Some(before) = before {
            gradients.register::<Flex>(before.id, token());
        }
        let gradient = call.run().gradients.get_mut(input).and_then(Option::take);
        if let (Some(parent), Some(gradient)) = (parent, gradient) {
            gradients.register::<Flex>(parent.id, gradient);
        }
    }
}
