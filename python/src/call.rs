//! Calls: tensors of other libraries in, arrays that these allocate out.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use oplus::{Call, Device, Elem, Error, Residual, Tensor};
use oplus_dsl::ir::{Op, Program};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::errors::exception;
use crate::import;
use crate::torch::Torch;

/// The values that a call has saved for its gradient, without the memory that holds them, which the caller keeps.
#[pyclass(frozen, module = "oplus._native")]
pub(crate) struct Saved(Residual);

/// A call's arrays; what has been saved, and in which array.
pub(crate) type Made<'py> = (Bound<'py, PyTuple>, Option<(Bound<'py, PyAny>, Saved)>);

/// Makes the arrays of a call.
pub(crate) enum Allocate<'a, 'py> {
    /// By a function of Python, `allocate(elem, shape)`.
    By(&'a Bound<'py, PyAny>),
    /// By PyTorch, beside a tensor that stores this, there.
    Beside(&'a Torch, Bound<'py, PyAny>, Elem, Device),
}

/// The element type, the shape and the strides of an array that is to be made.
pub(crate) struct Form {
    elem: Elem,
    shape: Py<PyTuple>,
    strides: Py<PyTuple>,
}

impl Form {
    fn new(py: Python<'_>, elem: Elem, shape: &[usize]) -> PyResult<Form> {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = shape[axis].max(1).saturating_mul(strides[axis]);
        }
        Ok(Form { elem, shape: PyTuple::new(py, shape)?.unbind(), strides: PyTuple::new(py, strides)?.unbind() })
    }
}

impl<'a, 'py> Allocate<'a, 'py> {
    /// Finds the meaning of `allocate`: a function, or PyTorch, which makes arrays beside the first of the objects.
    pub(crate) fn of(
        allocate: &'a Bound<'py, PyAny>,
        objects: &Bound<'py, PyTuple>,
        tensors: &[Option<Tensor>],
    ) -> Allocate<'a, 'py> {
        let first = tensors.iter().position(Option::is_some);
        let like = first.and_then(|at| objects.get_item(at).ok().zip(tensors[at].as_ref()));
        match (allocate.cast::<Torch>(), like) {
            (Ok(torch), Some((like, tensor))) => Allocate::Beside(torch.get(), like, tensor.elem(), tensor.device()),
            _ => Allocate::By(allocate),
        }
    }

    fn py(&self) -> Python<'py> {
        match self {
            Allocate::By(function) => function.py(),
            Allocate::Beside(_, like, ..) => like.py(),
        }
    }

    /// An array, and a tensor that sees it.
    fn made(&self, name: &str, form: &Form) -> PyResult<(Bound<'py, PyAny>, Tensor)> {
        let py = self.py();
        let (shape, strides) = (form.shape.bind(py), form.strides.bind(py));
        let array = match self {
            Allocate::By(function) => function.call1((PyString::intern(py, form.elem.name()), shape))?,
            Allocate::Beside(torch, like, known, device) => {
                if let Some(array) = torch.quick(py, device, form.elem, (shape, strides))? {
                    let tensor = import::tensor(name, &array)?;
                    if tensor.device() == *device {
                        return Ok((array, tensor));
                    }
                }
                torch.tensor((like, *known), form.elem, (shape, strides))?
            }
        };
        let tensor = import::tensor(name, &array)?;
        Ok((array, tensor))
    }
}

/// The outputs of a kernel's last call, for calls whose inputs have the same types and shapes.
#[derive(Default)]
pub(crate) struct Last(Mutex<Option<Arc<Known>>>);

struct Known {
    inputs: Vec<Option<(Elem, Vec<usize>)>>,
    outputs: Vec<Form>,
}

impl Known {
    fn is_for(&self, inputs: &[Option<Tensor>]) -> bool {
        let is_same = |known: &Option<(Elem, Vec<usize>)>, input: &Option<Tensor>| match (known, input) {
            (None, None) => true,
            (Some((elem, shape)), Some(tensor)) => *elem == tensor.elem() && shape == tensor.shape(),
            _ => false,
        };
        self.inputs.iter().zip(inputs).all(|(known, input)| is_same(known, input))
    }
}

impl Last {
    /// The forms of the outputs of a call.
    fn outputs(&self, py: Python<'_>, kernel: &oplus::Kernel, inputs: &[Option<Tensor>]) -> PyResult<Arc<Known>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.is_for(inputs)) {
            return Ok(known.clone());
        }
        let shapes = kernel.output_shapes(&given(inputs)).map_err(|e| exception(py, &e))?;
        let outputs = shapes.iter().map(|(elem, shape)| Form::new(py, *elem, shape)).collect::<PyResult<_>>()?;
        let inputs = inputs.iter().map(|x| x.as_ref().map(|x| (x.elem(), x.shape().to_vec()))).collect();
        let known = Arc::new(Known { inputs, outputs });
        *last = Some(known.clone());
        Ok(known)
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
    (kernel, last): (&oplus::Kernel, &Last),
    inputs: Vec<Option<Tensor>>,
    allocate: &Allocate<'_, 'py>,
    is_saving: bool,
) -> PyResult<Made<'py>> {
    let py = allocate.py();
    let told = |e: Error| exception(py, &e);
    let known = last.outputs(py, kernel, &inputs)?;
    let program = kernel.program().map_err(told)?;
    let names = program.outputs.iter().map(|output| &output.name);
    let made = names.zip(&known.outputs).map(|(name, form)| allocate.made(name, form));
    let (arrays, outputs): (Vec<_>, Vec<_>) = made.collect::<PyResult<Vec<_>>>()?.into_iter().unzip();
    let sinks: Vec<&Tensor> = outputs.iter().collect();
    let on_gpu = matches!(outputs.first().map(Tensor::device), Some(Device::Cuda(_)));
    // Only states that are summed away are ever saved: other calls need not ask.
    let len = if is_saving && on_gpu && has_sums(program) {
        kernel.residual_shape(&given(&inputs), &sinks).map_err(told)?
    } else {
        None
    };
    let states = len.map(|shape| allocate.made("residual", &Form::new(py, Elem::F32, &shape)?)).transpose()?;
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

/// Whether a program sums along an axis.
pub(crate) fn has_sums(program: &Program) -> bool {
    program.nodes.iter().any(|node| matches!(node.op, Op::Reduce { .. }))
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

/// The call that a gradient is taken of.
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
    let py = allocate.py();
    let told = |e: Error| exception(py, &e);
    let Backward { inputs, outputs, cotangents, wanted, saved } = backward;
    let params = &kernel.program().map_err(told)?.params;
    let floats = params.iter().zip(&inputs).filter(|(param, _)| param.elem.is_float());
    let wanted = floats.zip(&wanted).map(|((param, input), wanted)| match input {
        Some(like) if *wanted => {
            allocate.made(&format!("{}_bar", param.name), &Form::new(py, like.elem(), like.shape())?).map(Some)
        }
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
