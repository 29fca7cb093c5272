//! Tensors of burn, which carry their backend and graph at run time, as the primitives of a backend.

use burn::backend::{
    Autodiff, BackendTensor, BackendTypes, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, TensorMetadata,
};
use oplus::Kernel;

use crate::Error;
use crate::memory::{Memory, is_float, of_kind};

/// A tensor that may be part of a graph.
pub(crate) type AutodiffTensor<B> = <Autodiff<B> as BackendTypes>::FloatTensorPrimitive;

/// A tensor as the backend that it is of knows it.
pub(crate) fn inner(tensor: &DispatchTensor) -> &DispatchTensorKind {
    match &tensor.kind {
        DispatchTensorKind::Autodiff(inner) => inner,
        kind => kind,
    }
}

/// The inputs of a call.
pub(crate) struct Inputs<B: Memory> {
    primitives: Vec<Option<B::Tensor>>,
    /// The inputs that require gradients, by their index.
    pub(crate) tracked: Vec<(usize, AutodiffTensor<B>)>,
    /// The context of the inputs, which the outputs have, too.
    context: DispatchAutodiffContext,
}

impl<B: Memory> Inputs<B> {
    /// Takes the tensors apart.
    pub(crate) fn new(kernel: &Kernel, given: &[Option<DispatchTensor>]) -> Result<Inputs<B>, Error> {
        let mut inputs = Inputs { primitives: vec![], tracked: vec![], context: DispatchAutodiffContext::Disabled };
        let params = &kernel.program()?.params;
        for (k, tensor) in given.iter().enumerate() {
            let name = params.get(k).map_or("", |param| param.name.as_str());
            let primitive = tensor.as_ref().map(|tensor| inputs.take(k, tensor, name)).transpose()?;
            inputs.primitives.push(primitive);
        }
        Ok(inputs)
    }

    fn take(&mut self, index: usize, tensor: &DispatchTensor, name: &str) -> Result<B::Tensor, Error> {
        self.context = self.context.merge(tensor.autodiff);
        let kind = inner(tensor);
        let Some(known) = B::of(kind) else {
            return Err(Error::Backend { tensor: name.into(), found: format!("{:?}", kind.device()) });
        };
        match known {
            BackendTensor::Float(primitive) | BackendTensor::Int(primitive) | BackendTensor::Bool(primitive) => {
                Ok(primitive.clone())
            }
            BackendTensor::Autodiff(tensor) => {
                if tensor.is_tracked() {
                    self.tracked.push((index, tensor.clone()));
                }
                Ok(tensor.primitive().clone())
            }
            BackendTensor::Quantized(tensor) => {
                Err(Error::Stored { tensor: name.into(), found: format!("{:?}", tensor.dtype()) })
            }
        }
    }

    /// The tensors without their graph.
    pub(crate) fn primitives(&self) -> &[Option<B::Tensor>] {
        &self.primitives
    }

    /// Whether an input requires gradients.
    pub(crate) fn is_tracked(&self) -> bool {
        !self.tracked.is_empty()
    }

    /// The outputs as tensors that are part of no graph.
    pub(crate) fn untracked(&self, outputs: Vec<B::Tensor>) -> Vec<DispatchTensor> {
        outputs.into_iter().map(|output| self.constant(output)).collect()
    }

    /// An output without a graph.
    pub(crate) fn constant(&self, output: B::Tensor) -> DispatchTensor {
        match (is_float(&output), self.context) {
            (true, DispatchAutodiffContext::Enabled(_)) => self.tensor(AutodiffTensor::<B>::new(output)),
            _ => self.of(B::kind(of_kind(output))),
        }
    }

    /// An output that may be part of a graph.
    pub(crate) fn tensor(&self, output: AutodiffTensor<B>) -> DispatchTensor {
        let inner = B::kind(BackendTensor::Autodiff(output));
        self.of(DispatchTensorKind::Autodiff(Box::new(inner)))
    }

    fn of(&self, kind: DispatchTensorKind) -> DispatchTensor {
        DispatchTensor { kind, autodiff: self.context }
    }
}
