//! A call as part of candle's graph.
//!
//! An operation of candle has at most three arguments and one result; a kernel has more of both. *Tokens* of one element carry the
//! graph, a cell carries the numbers:
//!
//! ```text
//! x0, x1, x2 → token ┐
//!            x3, x4 → token ┐
//!                    x5, x6 → token of the call ─→ y0
//!                                               └→ y1
//! ```
//!
//! `backward` goes this way back. An output puts its cotangent into the cell. The token of the call, which comes after all outputs that
//! the loss depends on, runs the gradient once; each token then hands out the gradients of its own inputs.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Error, Layout, Result, Shape, Storage, Tensor,
};
use oplus::Kernel;

use crate::memory::{Made, Saved, constant, token};

/// A kernel, however its owner keeps it.
pub(crate) type SharedKernel = Arc<dyn Deref<Target = Kernel> + Send + Sync>;

/// Whether an input is part of a graph.
pub(crate) fn is_tracked(inputs: &[Option<&Tensor>]) -> bool {
    inputs.iter().flatten().any(|tensor| is_differentiated(tensor))
}

/// Whether `backward` goes on to a tensor: it does not to integers.
fn is_differentiated(tensor: &Tensor) -> bool {
    tensor.track_op() && tensor.dtype().is_float()
}

/// The outputs of a call as part of the graph of its inputs.
pub(crate) fn record(kernel: SharedKernel, inputs: &[Option<&Tensor>], made: Made) -> Result<Vec<Tensor>> {
    let tracked: Vec<(usize, &Tensor)> = inputs
        .iter()
        .enumerate()
        .filter_map(|(k, input)| Some((k, (*input)?)))
        .filter(|(_, input)| is_differentiated(input))
        .collect();
    let saved = Saved::new(&kernel, inputs, &made)?;
    let wanted = (0..inputs.len()).map(|k| tracked.iter().any(|(at, _)| *at == k)).collect();
    let call = Arc::new(Recorded { kernel, saved, wanted, runs: Mutex::default() });
    let token = tokens(&call, &tracked)?;
    made.outputs.into_iter().enumerate().map(|(k, output)| call.output(&token, k, output)).collect()
}

/// A call that has been made, and what passes through it while `backward` runs.
struct Recorded {
    kernel: SharedKernel,
    saved: Saved,
    /// For each input, whether its gradient is asked for.
    wanted: Vec<bool>,
    /// `backward` runs on one thread, and may run on several at a time.
    runs: Mutex<HashMap<ThreadId, Run>>,
}

/// The numbers of one `backward`.
#[derive(Default)]
struct Run {
    /// Cotangents by output, until the gradient has run.
    cotangents: HashMap<usize, Tensor>,
    /// Gradients by input, from then on.
    gradients: HashMap<usize, Tensor>,
}

impl Recorded {
    /// An output as a tensor behind the token of the call. No gradient goes through integers.
    fn output(
        self: &Arc<Recorded>,
        token: &Tensor,
        index: usize,
        (storage, shape): (Storage, Shape),
    ) -> Result<Tensor> {
        if !storage.dtype().is_float() {
            return Ok(constant(storage, shape));
        }
        let made = Mutex::new(Some((storage, shape)));
        let output = token.apply_op1(Output { call: self.clone(), index, made })?;
        self.saved.keep_output(index, &output);
        Ok(output)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<ThreadId, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the cotangent of an output. A second one of the same output belongs to a new `backward`, after one that failed
    /// before it came to the call.
    fn put(&self, output: usize, cotangent: Tensor) {
        let mut runs = self.runs();
        let run = runs.entry(thread::current().id()).or_default();
        if run.cotangents.contains_key(&output) {
            *run = Run::default();
        }
        run.cotangents.insert(output, cotangent);
    }

    /// Runs the gradient on the cotangents that have come in.
    fn differentiate(&self) -> Result<()> {
        let id = thread::current().id();
        let cotangents = self.runs().remove(&id).unwrap_or_default().cotangents;
        let gradients = self.saved.gradient(&self.kernel, &cotangents, &self.wanted)?;
        self.runs().insert(id, Run { cotangents: HashMap::new(), gradients });
        Ok(())
    }

    /// Hands out the gradient of an input.
    fn take(&self, input: usize) -> Result<Tensor> {
        let (mut runs, id) = (self.runs(), thread::current().id());
        let Some(gradient) = runs.get_mut(&id).and_then(|run| run.gradients.remove(&input)) else {
            let name = &self.kernel.program().map_err(Error::wrap)?.params[input].name;
            return Err(Error::msg(format!("kernel `{}` has no gradient for `{name}`", self.kernel.name())));
        };
        if runs.get(&id).is_some_and(|run| run.gradients.is_empty()) {
            runs.remove(&id);
        }
        Ok(gradient)
    }
}

/// The operation behind an output.
struct Output {
    call: Arc<Recorded>,
    index: usize,
    /// The output of the kernel, taken when the tensor is made.
    made: Mutex<Option<(Storage, Shape)>>,
}

impl Output {
    fn take(&self) -> Result<(Storage, Shape)> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.ok_or_else(|| Error::msg("an output of a kernel is made once"))
    }
}

impl CustomOp1 for Output {
    fn name(&self) -> &'static str {
        "oplus-output"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match self.take()? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            _ => Err(Error::msg("an output of a kernel is not where its inputs are")),
        }
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        match self.take()? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            _ => Err(Error::msg("an output of a kernel is not where its inputs are")),
        }
    }

    fn bwd(&self, token: &Tensor, _: &Tensor, cotangent: &Tensor) -> Result<Option<Tensor>> {
        self.call.put(self.index, cotangent.clone());
        token.zeros_like().map(Some)
    }
}

/// The token of the call: the last of a chain to which each token adds inputs.
fn tokens(call: &Arc<Recorded>, tracked: &[(usize, &Tensor)]) -> Result<Tensor> {
    let (first, mut rest) = tracked.split_at(tracked.len().min(3));
    let join = |arguments: Vec<Argument>, rest: &[(usize, &Tensor)]| Token {
        call: call.clone(),
        arguments,
        runs_gradient: rest.is_empty(),
    };
    let of_inputs = |inputs: &[(usize, &Tensor)]| inputs.iter().map(|(k, _)| Argument::Input(*k)).collect::<Vec<_>>();
    let mut token = join(of_inputs(first), rest).apply(&first.iter().map(|(_, x)| *x).collect::<Vec<_>>())?;
    while !rest.is_empty() {
        let (next, after) = rest.split_at(rest.len().min(2));
        let arguments = [vec![Argument::Token], of_inputs(next)].concat();
        let tensors: Vec<&Tensor> = [&token].into_iter().chain(next.iter().map(|(_, x)| *x)).collect();
        (token, rest) = (join(arguments, after).apply(&tensors)?, after);
    }
    Ok(token)
}

/// The argument that a token is made from.
#[derive(Clone, Copy)]
enum Argument {
    /// The token before it.
    Token,
    /// The input of that index.
    Input(usize),
}

/// The operation behind a token.
struct Token {
    call: Arc<Recorded>,
    arguments: Vec<Argument>,
    /// Whether it is the token of the call.
    runs_gradient: bool,
}

impl Token {
    fn apply(self, arguments: &[&Tensor]) -> Result<Tensor> {
        match arguments {
            [a] => a.apply_op1(self),
            [a, b] => a.apply_op2(b, self),
            [a, b, c] => a.apply_op3(b, c, self),
            _ => Err(Error::msg("an operation of candle has one to three arguments")),
        }
    }

    /// The gradients of the arguments, in their order.
    fn gradients(&self, cotangent: &Tensor) -> Result<[Option<Tensor>; 3]> {
        if self.runs_gradient {
            self.call.differentiate()?;
        }
        let mut gradients = [None, None, None];
        for (gradient, argument) in gradients.iter_mut().zip(&self.arguments) {
            *gradient = Some(match argument {
                Argument::Token => cotangent.zeros_like()?,
                Argument::Input(k) => self.call.take(*k)?,
            });
        }
        Ok(gradients)
    }
}

const TOKEN: &str = "oplus-call";

impl CustomOp1 for Token {
    fn name(&self) -> &'static str {
        TOKEN
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(1)))
    }

    fn cuda_fwd(&self, near: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        token(near)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, cotangent: &Tensor) -> Result<Option<Tensor>> {
        let [a, _, _] = self.gradients(cotangent)?;
        Ok(a)
    }
}

impl CustomOp2 for Token {
    fn name(&self) -> &'static str {
        TOKEN
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(1)))
    }

    fn cuda_fwd(&self, near: &CudaStorage, _: &Layout, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        token(near)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor, cotangent: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [a, b, _] = self.gradients(cotangent)?;
        Ok((a, b))
    }
}

impl CustomOp3 for Token {
    fn name(&self) -> &'static str {
        TOKEN
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(1)))
    }

    fn cuda_fwd(
        &self,
        near: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        token(near)
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        cotangent: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [a, b, c] = self.gradients(cotangent)?;
        Ok((a, b, c))
    }
}
