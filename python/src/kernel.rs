//! Kernels, called with tensors of other libraries.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use oplus::{Device, Elem, Tensor};
use oplus_dsl::ir::Program;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::arguments::TensorType;
use crate::errors::exception;
use crate::explain::{Explanation, shapes};
use crate::import;

/// A program that can be called, with its gradient.
#[pyclass(frozen, module = "oplus._native")]
pub(crate) struct Kernel {
    /// Made at the first use.
    kernel: OnceLock<Result<oplus::Kernel, oplus::Error>>,
    program: Program,
    docs: String,
    /// Whether a call has been made, so that the next one need not compile anything.
    is_warm: AtomicBool,
}

impl Kernel {
    pub(crate) fn of(program: Program, docs: String) -> Kernel {
        Kernel { kernel: OnceLock::new(), program, docs, is_warm: AtomicBool::new(false) }
    }
}

#[pymethods]
impl Kernel {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.program.name
    }

    /// Its documentation.
    #[getter]
    fn docs(&self) -> &str {
        &self.docs
    }

    /// The program in its text form.
    #[getter]
    fn text(&self) -> String {
        self.program.to_string()
    }

    /// The program as equations.
    #[getter]
    fn equations(&self) -> String {
        oplus_dsl::adjoint::equations(&self.program)
    }

    /// The parameters.
    #[getter]
    fn params(&self) -> Vec<TensorType> {
        self.program.params.iter().map(|param| TensorType::of_param(&self.program, param)).collect()
    }

    /// The outputs.
    #[getter]
    fn outputs(&self) -> Vec<TensorType> {
        self.program.outputs.iter().map(|output| TensorType::of_output(&self.program, output)).collect()
    }

    /// Computes the outputs. `inputs` has one entry per parameter, `None` for those left out; `allocate(elem, shape)` makes an
    /// array for an output.
    fn call<'py>(&self, inputs: &Bound<'py, PyTuple>, allocate: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let py = inputs.py();
        let kernel = self.kernel(py)?;
        let tensors = self.import(inputs)?;
        let given: Vec<Option<&Tensor>> = tensors.iter().map(Option::as_ref).collect();
        let Some(shapes) = output_shapes(&self.program, &given) else {
            return Err(match kernel.call(&given) {
                Err(error) => exception(py, &error),
                Ok(_) => PyValueError::new_err("the sizes of the outputs are unknown"),
            });
        };
        let arrays = shapes.into_iter().map(|(elem, shape)| allocated(allocate, elem, &shape));
        let arrays = arrays.collect::<PyResult<Vec<_>>>()?;
        let outputs =
            self.program.outputs.iter().zip(&arrays).map(|(output, array)| import::tensor(&output.name, array));
        let outputs = outputs.collect::<PyResult<Vec<Tensor>>>()?;
        let sinks: Vec<&Tensor> = outputs.iter().collect();
        let on_gpu = matches!(outputs.first().map(Tensor::device), Some(Device::Cuda(_)));
        // A launch takes less time than another thread takes to begin.
        let called = if on_gpu && self.is_warm.load(Ordering::Relaxed) {
            kernel.call_into(&given, &sinks)
        } else {
            py.detach(|| kernel.call_into(&given, &sinks))
        };
        called.map_err(|e| exception(py, &e))?;
        self.is_warm.store(true, Ordering::Relaxed);
        PyTuple::new(py, arrays)
    }

    /// The kernel of the gradient, with those outputs only whose place in `wanted` is true.
    #[pyo3(signature = (wanted = None))]
    fn gradient(&self, py: Python<'_>, wanted: Option<Vec<bool>>) -> PyResult<Kernel> {
        let gradient = self.kernel(py)?.gradient_program().map_err(|e| exception(py, &e))?;
        let complete = oplus_dsl::batched::with_axes_of(gradient, &self.program);
        let Some(wanted) = wanted else { return Ok(Kernel::of(complete, String::new())) };
        let names = complete.outputs.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(o, _)| o.name.as_str());
        let names: Vec<&str> = names.collect();
        Ok(Kernel::of(oplus_dsl::specialize::keep_outputs(&complete, &names), String::new()))
    }

    /// The kernel with one more axis, before all others of the parameters whose place in `mapped` is true and of the outputs
    /// that depend on them; with it, for every output, whether it has that axis.
    fn batched(&self, mapped: Vec<bool>) -> PyResult<(Kernel, Vec<bool>)> {
        let (program, outputs) = oplus_dsl::batched::batched(&self.program, &mapped).map_err(|reason| {
            PyNotImplementedError::new_err(format!("`{}` cannot be mapped: {reason}", self.program.name))
        })?;
        Ok((Kernel::of(program, String::new()), outputs))
    }

    /// The one-step form, the axis that is gone, and the states: pairs of a parameter and the output that goes on to it.
    fn step(&self) -> PyResult<(Kernel, String, Vec<(String, String)>)> {
        let step = oplus_dsl::step::step(&self.program).map_err(|e| {
            PyNotImplementedError::new_err(format!("`{}` has no one-step form: {e}", self.program.name))
        })?;
        let states = step.states.into_iter().map(|state| (state.param, state.output)).collect();
        Ok((Kernel::of(step.program, String::new()), step.axis, states))
    }

    /// What a call of these sizes does and why.
    #[pyo3(signature = (sizes, elem = "f32", device = None, without = vec![]))]
    fn explain(
        &self,
        py: Python<'_>,
        sizes: Vec<(String, usize)>,
        elem: &str,
        device: Option<&str>,
        without: Vec<String>,
    ) -> PyResult<Explanation> {
        let shapes = shapes(py, sizes, elem, device, without)?;
        let kernel = self.kernel(py)?;
        let explained = py.detach(|| kernel.explain(&shapes));
        Explanation::of(explained.map_err(|e| exception(py, &e))?)
    }
}

impl Kernel {
    fn kernel(&self, py: Python<'_>) -> PyResult<&oplus::Kernel> {
        let made = match self.kernel.get() {
            Some(made) => made,
            None => py.detach(|| self.kernel.get_or_init(|| oplus::Kernel::from_program(self.program.clone()))),
        };
        made.as_ref().map_err(|e| exception(py, e))
    }

    fn import(&self, inputs: &Bound<'_, PyTuple>) -> PyResult<Vec<Option<Tensor>>> {
        let params = &self.program.params;
        if inputs.len() != params.len() {
            let (name, expected, found) = (&self.program.name, params.len(), inputs.len());
            return Err(PyTypeError::new_err(format!("`{name}` takes {expected} tensors, {found} were given")));
        }
        let import = |(param, object): (&oplus_dsl::ir::Param, Bound<'_, PyAny>)| {
            if object.is_none() { Ok(None) } else { import::tensor(&param.name, &object).map(Some) }
        };
        params.iter().zip(inputs.iter()).map(import).collect()
    }
}

/// An array of the framework for an output.
fn allocated<'py>(allocate: &Bound<'py, PyAny>, elem: Elem, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let py = allocate.py();
    allocate.call1((PyString::intern(py, elem.name()), PyTuple::new(py, shape)?))
}

/// The element types and shapes of a call's outputs, if its inputs tell them. Whether the inputs agree with each other, the
/// call itself checks.
fn output_shapes(program: &Program, inputs: &[Option<&Tensor>]) -> Option<Vec<(Elem, Vec<usize>)>> {
    let mut sizes = vec![None; program.axes.len()];
    // What may be stored as `wide` tells the type of the call only where nothing else does.
    let (mut call, mut other) = (None, None);
    for (param, tensor) in program.params.iter().zip(inputs) {
        let Some(tensor) = tensor else { continue };
        for (axis, size) in param.axes.iter().zip(tensor.shape()) {
            sizes[axis.0 as usize].get_or_insert(*size);
        }
        if param.elem == Elem::Call {
            let known = if param.or.is_none() { &mut call } else { &mut other };
            known.get_or_insert(tensor.elem());
        }
    }
    let call = call.or(other).unwrap_or(Elem::F32);
    let shape =
        |axes: &[oplus_dsl::ir::Axis]| axes.iter().map(|axis| sizes[axis.0 as usize]).collect::<Option<Vec<_>>>();
    program.outputs.iter().map(|o| Some((o.elem.in_call(call), shape(&o.axes)?))).collect()
}
