//! Tensors of burn, which carry their backend and graph at run time, as the primitives of a backend.

use burn::backend::flex::FlexTensor;
use burn::backend::{
    Autodiff, BackendTensor, BackendTypes, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, Flex,
    TensorMetadata,
};
use oplus::Kernel;

use crate::Error;
use crate::memory::is_float;

/// A tensor that may be part of a graph.
pub(crate) type AutodiffTensor = <Autodiff<Flex> as BackendTypes>::FloatTensorPrimitive;

/// The inputs of a call.
pub(crate) struct Inputs {
    primitives: Vec<Option<FlexTensor>>,
    /// Those that require gradients, by their index.
    pub(crate) tracked: Vec<(usize, AutodiffTensor)>,
    /// What the inputs have in common, which the outputs have, too.
    context: DispatchAutodiffContext,
}

impl Inputs {
    /// Takes the tensors apart.
    pub(crate) fn new(kernel: &Kernel, given: &[Option<DispatchTensor>]) -> Result<Inputs, Error> {
        let mut inputs = Inputs { primitives: vec![], tracked: vec![], context: DispatchAutodiffContext::Disabled };
        let params = &kernel.program()?.params;
        for (k, tensor) in given.iter().enumerate() {
            let name = params.get(k).map_or("", |param| param.name.as_str());
            let primitive = tensor.as_ref().map(|tensor| inputs.take(k, tensor, name)).transpose()?;
            inputs.primitives.push(primitive);
        }
        Ok(inputs)
    }

    fn take(&mut self, index: usize, tensor: &DispatchTensor, name: &str) -> Result<FlexTensor, Error> {
        self.context = self.context.merge(tensor.autodiff);
        let kind = match &tensor.kind {
            DispatchTensorKind::Autodiff(inner) => inner.as_ref(),
            kind => kind,
        };
        match kind {
            DispatchTensorKind::Flex(BackendTensor::Float(primitive)) => Ok(primitive.clone()),
            DispatchTensorKind::Flex(BackendTensor::Int(primitive)) => Ok(primitive.clone()),
            DispatchTensorKind::Flex(BackendTensor::Bool(primitive)) => Ok(primitive.clone()),
            DispatchTensorKind::Flex(BackendTensor::Autodiff(tensor)) => {
                if tensor.is_tracked() {
                    self.tracked.push((index, tensor.clone()));
                }
                Ok(tensor.primitive().clone())
            }
            DispatchTensorKind::Flex(BackendTensor::Quantized(tensor)) => {
                Err(Error::Stored { tensor: name.into(), found: format!("{:?}", tensor.dtype()) })
            }
            #[allow(unreachable_patterns, reason = "other backends are features of burn")]
            _ => Err(Error::Backend { tensor: name.into(), found: format!("{:?}", tensor.device()) }),
        }
    }

    /// The tensors without their graph.
    pub(crate) fn primitives(&self) -> &[Option<FlexTensor>] {
        &self.primitives
    }

    /// Whether an input requires gradients.
    pub(crate) fn is_tracked(&self) -> bool {
        !self.tracked.is_empty()
    }

    /// The outputs as tensors that are part of no graph.
    pub(crate) fn untracked(&self, outputs: Vec<FlexTensor>) -> Vec<DispatchTensor> {
        outputs.into_iter().map(|output| self.constant(output)).collect()
    }

    /// An output without a graph.
    pub(crate) fn constant(&self, output: FlexTensor) -> DispatchTensor {
        match (is_float(&output), self.context) {
            (true, DispatchAutodiffContext::Enabled(_)) => self.tensor(AutodiffTensor::new(output)),
            (true, DispatchAutodiffContext::Disabled) => {
                self.of(DispatchTensorKind::Flex(BackendTensor::Float(output)))
            }
            (false, _) => {
                let is_bool = matches!(output.dtype(), burn::tensor::DType::Bool(_));
                let tensor = if is_bool { BackendTensor::Bool(output) } else { BackendTensor::Int(output) };
                self.of(DispatchTensorKind::Flex(tensor))
            }
        }
    }

    /// An output that may be part of a graph.
    pub(crate) fn tensor(&self, output: AutodiffTensor) -> DispatchTensor {
        let inner = DispatchTensorKind::Flex(BackendTensor::Autodiff(output));
        self.of(DispatchTensorKind::Autodiff(Box::new(inner)))
    }

    fn of(&self, kind: DispatchTensorKind) -> DispatchTensor {
        DispatchTensor { kind, autodiff: self.context }
    }
}
