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

use burn::backend::DispatchTensor;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use oplus::Kernel;

use crate::memory::{Made, Memory, Saved, is_float, token};
use crate::tensors::{AutodiffTensor, Inputs};

/// A kernel, however its owner keeps it.
pub(crate) type SharedKernel = Arc<dyn Deref<Target = Kernel> + Send + Sync>;

/// The outputs of a call as part of the graph of its inputs.
pub(crate) fn record<B: Memory>(kernel: SharedKernel, mut inputs: Inputs<B>, made: Made<B>) -> Vec<DispatchTensor> {
    let Made { outputs, saved } = made;
    let run = Mutex::new(Run { cotangents: vec![None; outputs.len()], gradients: vec![] });
    let tracked = std::mem::take(&mut inputs.tracked);
    let wanted = (0..saved.inputs()).map(|k| tracked.iter().any(|(at, _)| *at == k)).collect();
    let token = token::<B>(&saved.device);
    let call = Recorded(Arc::new(Cell { kernel, saved, wanted, token, run }));
    let token = call.tokens(tracked);
    let output = |(k, output): (usize, B::Tensor)| match is_float(&output) {
        true => inputs.tensor(call.output(&token, k, output)),
        false => inputs.constant(output),
    };
    outputs.into_iter().enumerate().map(output).collect()
}

/// A call that has been made.
struct Recorded<B: Memory>(Arc<Cell<B>>);

struct Cell<B: Memory> {
    kernel: SharedKernel,
    saved: Saved<B>,
    /// For each input, whether its gradient is asked for.
    wanted: Vec<bool>,
    /// One element, which stands for the call in burn's graph.
    token: B::Tensor,
    run: Mutex<Run<B>>,
}

/// The numbers of `backward`.
struct Run<B: Memory> {
    /// By output, until the gradient has run.
    cotangents: Vec<Option<B::Tensor>>,
    /// By input, from then on.
    gradients: Vec<Option<B::Tensor>>,
}

impl<B: Memory> Clone for Recorded<B> {
    fn clone(&self) -> Recorded<B> {
        Recorded(self.0.clone())
    }
}

impl<B: Memory> fmt::Debug for Recorded<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorded").field(&self.0.kernel.name()).finish()
    }
}

impl<B: Memory> Recorded<B> {
    fn run(&self) -> MutexGuard<'_, Run<B>> {
        self.0.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of the call: the last of a chain to which each token adds an input.
    fn tokens(&self, tracked: Vec<(usize, AutodiffTensor<B>)>) -> AutodiffTensor<B> {
        let last = tracked.len().saturating_sub(1);
        let mut before = AutodiffTensor::<B>::new(self.token());
        for (place, (input, tensor)) in tracked.into_iter().enumerate() {
            let state = TokenState { call: self.clone(), input, runs_gradient: place == last };
            before = step::<B, _, 2>(Token, [before.node(), tensor.node()], state, self.token());
        }
        before
    }

    /// An output as a tensor behind the token of the call.
    fn output(&self, token: &AutodiffTensor<B>, index: usize, made: B::Tensor) -> AutodiffTensor<B> {
        step::<B, _, 1>(Output, [token.node()], (self.clone(), index), made)
    }

    /// The element that stands for the call.
    fn token(&self) -> B::Tensor {
        self.0.token.clone()
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
fn step<B: Memory, T: Backward<B, N>, const N: usize>(
    backward: T,
    parents: [NodeGuard; N],
    state: T::State,
    output: B::Tensor,
) -> AutodiffTensor<B> {
    match backward.prepare::<NoCheckpointing>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

/// The step of an output.
#[derive(Debug)]
struct Output;

impl<B: Memory> Backward<B, 1> for Output {
    type State = (Recorded<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let cotangent = gradients.consume::<B>(&ops.node);
        let (call, index) = ops.state;
        call.run().cotangents[index] = Some(cotangent);
        if let [Some(parent)] = ops.parents {
            gradients.register::<B>(parent.id, call.token());
        }
    }
}

/// The step of a token.
#[derive(Debug)]
struct Token;

#[derive(Clone, Debug)]
struct TokenState<B: Memory> {
    call: Recorded<B>,
    /// The input that it adds.
    input: usize,
    /// Whether it is the token of the call.
    runs_gradient: bool,
}

impl<B: Memory> Backward<B, 2> for Token {
    type State = TokenState<B>;

    fn backward(self, ops: Ops<TokenState<B>, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<B>(&ops.node);
        let TokenState { call, input, runs_gradient } = ops.state;
        if runs_gradient {
            call.differentiate();
        }
        let [before, parent] = ops.parents;
        if let Some(before) = before {
            gradients.register::<B>(before.id, call.token());
        }
        let gradient = call.run().gradients.get_mut(input).and_then(Option::take);
        if let (Some(parent), Some(gradient)) = (parent, gradient) {
            gradients.register::<B>(parent.id, gradient);
        }
    }
}
