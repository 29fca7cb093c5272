//! Kernels, called with tensors of other libraries.

use std::sync::OnceLock;

use oplus_dsl::ir::Program;
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::TensorType;
use crate::call::{Allocate, Backward, Last, Made, Saved, forward, gradient, has_sums, tensors};
use crate::errors::exception;
use crate::explain::{Explanation, shapes};
use crate::import;
use crate::torch::{CallMode, Torch};

/// A call's outputs, the array of the states that it has saved, and what they are.
type Recorded<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyAny>>, Option<Saved>);

/// A one-step form, the axis that is gone, and pairs of a parameter and the output that goes on to it.
type Step = (Kernel, String, Vec<(String, String)>);

/// A program that can be called, with its gradient.
#[pyclass(frozen, module = "oplus._native")]
pub(crate) struct Kernel {
    /// Made at the first use.
    kernel: OnceLock<Result<oplus::Kernel, oplus::Error>>,
    last: Last,
    program: Program,
    docs: String,
    /// Whether it is derived from a kernel whose operators keep the laws, so that its own do.
    is_derived: bool,
}

impl Kernel {
    pub(crate) fn of(program: Program, docs: String) -> Kernel {
        Kernel { kernel: OnceLock::new(), last: Last::default(), program, docs, is_derived: false }
    }

    /// A kernel that is derived from another one.
    fn derived(program: Program, docs: String) -> Kernel {
        Kernel { is_derived: true, ..Kernel::of(program, docs) }
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

    /// Whether it sums along an axis: only states that are summed away are ever saved for a gradient.
    #[getter]
    fn sums(&self) -> bool {
        has_sums(&self.program)
    }

    /// The program in its text form.
    #[getter]
    fn text(&self) -> String {
        self.program.to_string()
    }

    /// The kernel of a program in its text form.
    #[staticmethod]
    fn of_text(text: &str, docs: String) -> PyResult<Kernel> {
        let program = oplus_dsl::parse::parse(text).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(Kernel::of(program, docs))
    }

    /// The program as equations.
    #[getter]
    fn equations(&self) -> String {
        oplus_dsl::adjoint::equations(&self.program)
    }

    /// The parameters.
    #[getter(params)]
    fn param_types(&self) -> Vec<TensorType> {
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
        self.made(inputs, allocate, false).map(|(arrays, _)| arrays)
    }

    /// A call with tensors of PyTorch that nothing transforms or traces and whose gradient nobody wants. `None` where its
    /// gradient is to be recorded, `NotImplemented` for others.
    fn call_eager<'py>(&self, inputs: &Bound<'py, PyTuple>, torch: &Bound<'py, Torch>) -> PyResult<Bound<'py, PyAny>> {
        let py = inputs.py();
        match torch.get().call_mode(inputs)? {
            CallMode::Plain => self.made(inputs, torch.as_any(), false).map(|(arrays, _)| arrays.into_any()),
            CallMode::Recorded => Ok(py.None().into_bound(py)),
            CallMode::Traced => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    /// A call that saves states for its gradient if it can: the outputs, the array of the states, and what they are.
    fn call_saving<'py>(&self, inputs: &Bound<'py, PyTuple>, allocate: &Bound<'py, PyAny>) -> PyResult<Recorded<'py>> {
        let (arrays, saved) = self.made(inputs, allocate, true)?;
        let (array, saved) = saved.unzip();
        Ok((arrays, array, saved))
    }

    /// The gradients of a call with these inputs and outputs, of which those may be `None` that the gradient does not read, for
    /// the cotangents of the outputs that store floats. `wanted` has an entry for every parameter that stores floats; the result
    /// has an array for each that is wanted and was given. `states` and `saved` are what `call_saving` gave.
    #[pyo3(signature = (inputs, outputs, cotangents, wanted, allocate, states = None, saved = None))]
    fn backward<'py>(
        &self,
        inputs: &Bound<'py, PyTuple>,
        outputs: &Bound<'py, PyTuple>,
        cotangents: &Bound<'py, PyTuple>,
        wanted: Vec<bool>,
        allocate: &Bound<'py, PyAny>,
        states: Option<&Bound<'py, PyAny>>,
        saved: Option<&Bound<'py, Saved>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let floats: Vec<&str> = self.program.outputs.iter().filter(|o| o.elem.is_float()).map(|o| &*o.name).collect();
        let states = states.map(|states| import::tensor("states", states)).transpose()?;
        let given = tensors("inputs", self.params(), inputs)?;
        let allocate = Allocate::of(allocate, inputs, &given);
        let backward = Backward {
            inputs: given,
            outputs: tensors("outputs", self.program.outputs.iter().map(|output| &*output.name), outputs)?,
            cotangents: tensors("cotangents", floats.into_iter(), cotangents)?,
            wanted,
            saved: states.zip(saved.map(Bound::get)),
        };
        gradient(self.kernel(inputs.py())?, backward, &allocate)
    }

    /// The kernel of the gradient, with those outputs only whose place in `wanted` is true.
    #[pyo3(signature = (wanted = None))]
    fn gradient(&self, py: Python<'_>, wanted: Option<Vec<bool>>) -> PyResult<Kernel> {
        let gradient = self.kernel(py)?.gradient_program().map_err(|e| exception(py, &e))?;
        let complete = oplus_dsl::batched::with_axes_of(gradient, &self.program);
        let Some(wanted) = wanted else { return Ok(Kernel::derived(complete, String::new())) };
        let names = complete.outputs.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(o, _)| o.name.as_str());
        let names: Vec<&str> = names.collect();
        Ok(Kernel::derived(oplus_dsl::specialize::keep_outputs(&complete, &names), String::new()))
    }

    /// The kernel of the tangents, whose parameters are those of this kernel and then the tangents of those that store floats, 0 by
    /// default. Its outputs are the tangents of the outputs that store floats, before them, if `whole`, the outputs.
    fn tangent(&self, py: Python<'_>, whole: bool) -> PyResult<Kernel> {
        self.kernel(py)?;
        let tangent = oplus_dsl::forward::tangent(&self.program).map_err(|reason| {
            PyNotImplementedError::new_err(format!("`{}` has no forward mode: {reason}", self.program.name))
        })?;
        if whole {
            return Ok(Kernel::derived(tangent, self.docs.clone()));
        }
        let names: Vec<&str> = tangent.outputs[self.program.outputs.len()..].iter().map(|o| &*o.name).collect();
        Ok(Kernel::derived(oplus_dsl::specialize::keep_outputs(&tangent, &names), String::new()))
    }

    /// The kernel with one more axis, before all others of the parameters whose place in `mapped` is true and of the outputs
    /// that depend on them; with it, for every output, whether it has that axis.
    fn batched(&self, py: Python<'_>, mapped: Vec<bool>) -> PyResult<(Kernel, Vec<bool>)> {
        self.kernel(py)?;
        let (program, outputs) = oplus_dsl::batched::batched(&self.program, &mapped).map_err(|reason| {
            PyNotImplementedError::new_err(format!("`{}` cannot be mapped: {reason}", self.program.name))
        })?;
        Ok((Kernel::derived(program, String::new()), outputs))
    }

    /// The one-step form, the axis that is gone, and the states: pairs of a parameter and the output that goes on to it.
    fn step(&self, py: Python<'_>) -> PyResult<Step> {
        self.kernel(py)?;
        let step = oplus_dsl::step::step(&self.program).map_err(|e| {
            PyNotImplementedError::new_err(format!("`{}` has no one-step form: {e}", self.program.name))
        })?;
        let states = step.states.into_iter().map(|state| (state.param, state.output)).collect();
        Ok((Kernel::derived(step.program, String::new()), step.axis, states))
    }

    /// Explains a call of these sizes: its work, and the reasons for its plan.
    #[pyo3(signature = (sizes, elem = "f32", device = None, without = vec![]))]
    fn explain(
        &self,
        py: Python<'_>,
        sizes: Vec<(String, usize)>,
        elem: &str,
        device: Option<&str>,
        without: Vec<String>,
    ) -> PyResult<Explanation> {
        let shapes = shapes(py, &sizes, elem, device, without)?;
        let kernel = self.kernel(py)?;
        let explained = py.detach(|| kernel.explain(&shapes));
        Explanation::of(explained.map_err(|e| exception(py, &e))?, &sizes)
    }
}

impl Kernel {
    fn made<'py>(
        &self,
        inputs: &Bound<'py, PyTuple>,
        allocate: &Bound<'py, PyAny>,
        is_saving: bool,
    ) -> PyResult<Made<'py>> {
        let tensors = tensors("inputs", self.params(), inputs)?;
        let allocate = Allocate::of(allocate, inputs, &tensors);
        forward((self.kernel(inputs.py())?, &self.last), tensors, &allocate, is_saving)
    }

    fn kernel(&self, py: Python<'_>) -> PyResult<&oplus::Kernel> {
        let made = match self.kernel.get() {
            Some(made) => made,
            None => py.detach(|| self.kernel.get_or_init(|| self.make())),
        };
        made.as_ref().map_err(|e| exception(py, e))
    }

    fn make(&self) -> Result<oplus::Kernel, oplus::Error> {
        let program = self.program.clone();
        if self.is_derived { oplus::Kernel::from_derived(program) } else { oplus::Kernel::from_program(program) }
    }

    fn params(&self) -> impl ExactSizeIterator<Item = &str> {
        self.program.params.iter().map(|param| &*param.name)
    }
}
