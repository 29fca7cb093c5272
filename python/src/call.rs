//! Calls: tensors of other libraries in, arrays that these allocate out.

#![allow(unsafe_code)]

use oplus::{Call, Device, Elem, Error, Residual, Tensor};
use oplus_dsl::ir::Op;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::errors::exception;
use crate::import;

/// What a call has saved for its gradient, without the memory that holds it: which the caller keeps.
#[pyclass(frozen, module = "oplus._native")]
pub(crate) struct Saved(Residual);

/// A call's arrays; what has been saved, and in which array.
pub(crate) type Made<'py> = (Bound<'py, PyTuple>, Option<(Bound<'py, PyAny>, Saved)>);

/// Makes arrays of a library: `allocate(elem, shape)`.
pub(crate) struct Allocate<'a, 'py>(pub(crate) &'a Bound<'py, PyAny>);

impl<'py> Allocate<'_, 'py> {
    /// An array, and a tensor that sees it.
    fn made(&self, name: &str, elem: Elem, shape: &[usize]) -> PyResult<(Bound<'py, PyAny>, Tensor)> {
        let py = self.0.py();
        let array = self.0.call1((PyString::intern(py, elem.name()), PyTuple::new(py, shape)?))?;
        let tensor = import::tensor(name, &array)?;
        Ok((array, tensor))
    }
}

/// The tensors that Python objects are; `None` for those that are left out.
pub(crate) fn tensors<'n>(
    kind: &str,
    names: impl ExactSizeIterator<Item = &'n str>,
    objects: &Bound<'_, PyTuple>,
) -> PyResult<Vec<Option<Tensor>>> {
    let (expected, found) = (names.len(), objects.len());
    if expected != found {
        return Err(PyTypeError::new_err(format!("{expected} {kind} are needed, {found} were given")));
    }
    let import = |(name, object): (&str, Bound<'_, PyAny>)| {
        if object.is_none() { Ok(None) } else { import::tensor(name, &object).map(Some) }
    };
    names.zip(objects.iter()).map(import).collect()
}

/// References to tensors.
fn given(tensors: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    tensors.iter().map(Option::as_ref).collect()
}

/// Makes a call, which saves states for its gradient if that is wished and it can.
pub(crate) fn forward<'py>(
    kernel: &oplus::Kernel,
    inputs: Vec<Option<Tensor>>,
    allocate: &Allocate<'_, 'py>,
    is_saving: bool,
) -> PyResult<Made<'py>> {
    let py = allocate.0.py();
    let told = |e: Error| exception(py, &e);
    let shapes = kernel.output_shapes(&given(&inputs)).map_err(told)?;
    let program = kernel.program().map_err(told)?;
    let names = program.outputs.iter().map(|output| &output.name);
    let made = names.zip(&shapes).map(|(name, (elem, shape))| allocate.made(name, *elem, shape));
    let (arrays, outputs): (Vec<_>, Vec<_>) = made.collect::<PyResult<Vec<_>>>()?.into_iter().unzip();
    let sinks: Vec<&Tensor> = outputs.iter().collect();
    let on_gpu = matches!(outputs.first().map(Tensor::device), Some(Device::Cuda(_)));
    let sums = || program.nodes.iter().any(|node| matches!(node.op, Op::Reduce { .. }));
    // Only states that are summed away are ever saved: other calls need not ask.
    let len = if is_saving && on_gpu && sums() {
        kernel.residual_shape(&given(&inputs), &sinks).map_err(told)?
    } else {
        None
    };
    let states = len.map(|shape| allocate.made("residual", Elem::F32, &shape)).transpose()?;
    // Memory of a GPU may come from an allocator in Python, so that no lock of the runtime is waited for with Python's held.
    let place = states.as_ref().map(|(_, tensor)| tensor);
    let called = py.detach(|| match place {
        Some(states) => kernel.call_saving_into(&given(&inputs), &sinks, states).map(|call| call.residual().cloned()),
        None => kernel.call_into(&given(&inputs), &sinks).map(|_| None),
    });
    let saved = called.map_err(told)?.map(|residual| borrowed(&residual)).transpose().map_err(told)?;
    let saved = states.zip(saved).map(|((array, _), saved)| (array, Saved(saved)));
    Ok((PyTuple::new(py, arrays)?, saved))
}

/// The form of saved states, which does not keep their memory: whoever reads them gives it again.
fn borrowed(residual: &Residual) -> Result<Residual, Error> {
    let states = residual.states();
    let (Device::Cuda(device), Some(address)) = (states.device(), states.device_ptr()) else {
        return Ok(residual.clone());
    };
    let bytes = states.len() * size_of::<f32>();
    // SAFETY: nothing reads through this tensor: `gradient` puts the one that the caller kept in its place.
    let alias =
        unsafe { Tensor::from_device_ptr(address, bytes, Elem::F32, (states.shape(), states.strides()), &device, ())? };
    residual.with_states(&alias)
}

/// What a gradient is taken of.
pub(crate) struct Backward<'a> {
    pub(crate) inputs: Vec<Option<Tensor>>,
    /// `None` for those that the gradient does not read.
    pub(crate) outputs: Vec<Option<Tensor>>,
    pub(crate) cotangents: Vec<Option<Tensor>>,
    /// Which of the parameters that store floats have a gradient that is wanted.
    pub(crate) wanted: Vec<bool>,
    /// Saved states and their form.
    pub(crate) saved: Option<(Tensor, &'a Saved)>,
}

/// The gradients of a call, an array for each of the parameters that is wanted.
pub(crate) fn gradient<'py>(
    kernel: &oplus::Kernel,
    backward: Backward<'_>,
    allocate: &Allocate<'_, 'py>,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = allocate.0.py();
    let told = |e: Error| exception(py, &e);
    let Backward { inputs, outputs, cotangents, wanted, saved } = backward;
    let params = &kernel.program().map_err(told)?.params;
    let floats = params.iter().zip(&inputs).filter(|(param, _)| param.elem.is_float());
    let wanted = floats.zip(&wanted).map(|((param, input), wanted)| match input {
        Some(like) if *wanted => allocate.made(&format!("{}_bar", param.name), like.elem(), like.shape()).map(Some),
        _ => Ok(None),
    });
    let (arrays, sinks): (Vec<_>, Vec<_>) =
        wanted.collect::<PyResult<Vec<_>>>()?.into_iter().map(Option::unzip).unzip();
    let taken = py.detach(|| {
        let residual = saved.map(|(states, form)| form.0.with_states(&states)).transpose()?;
        let call = Call::from_parts(kernel, &given(&inputs), &given(&outputs), residual.as_ref())?;
        kernel.backward_into(&call, &given(&cotangents), &given(&sinks))
    });
    taken.map_err(told)?;
    PyTuple::new(py, arrays.into_iter().flatten().collect::<Vec<_>>())
}
