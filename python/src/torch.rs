//! Eager calls with tensors of PyTorch: what a call asks of the library, found once.

use oplus::{Device, Elem};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// The functions of PyTorch that calls need.
#[pyclass(frozen, module = "oplus._native")]
pub(crate) struct Torch {
    /// `torch.Tensor` and `torch.nn.Parameter`: the types of tensors that have memory and nothing else.
    plain: [Py<PyType>; 2],
    /// Whether transforms of `torch.func` are active, and how many dispatch modes are.
    hooks: [Py<PyAny>; 2],
    is_grad_enabled: Py<PyAny>,
    /// The names of `torch.autograd.forward_ad`, where its level is: −1 outside of forward mode.
    forward_ad: Py<PyDict>,
    /// PyTorch's element types, each alone and as arguments.
    dtypes: Vec<(Elem, Py<PyAny>, Py<PyDict>)>,
    /// `empty_strided(shape, strides, dtype)` on the CPU and on the current GPU, without PyTorch's dispatcher; `None` where PyTorch
    /// does not have it.
    empty: [Option<Py<PyAny>>; 2],
}

/// How a call with tensors of PyTorch is made.
pub(crate) enum CallMode {
    /// At once.
    Plain,
    /// At once, and its gradient is recorded.
    Recorded,
    /// As an operator of the library: something transforms or traces it.
    Traced,
}

#[pymethods]
impl Torch {
    /// `dtypes` are PyTorch's by our names, `hooks` give something true where something transforms or traces calls, `forward_ad` are
    /// the names of that module, `empty` make tensors on the CPU and on the current GPU.
    #[new]
    fn new(
        plain: [Py<PyType>; 2],
        hooks: [Py<PyAny>; 2],
        is_grad_enabled: Py<PyAny>,
        forward_ad: Py<PyDict>,
        dtypes: &Bound<'_, PyDict>,
        empty: [Option<Py<PyAny>>; 2],
    ) -> PyResult<Torch> {
        let dtype = |(name, dtype): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name = name.extract::<String>()?;
            let elem = Elem::from_name(&name).ok_or_else(|| PyTypeError::new_err(format!("`{name}` is no type")))?;
            let arguments = PyDict::new(dtypes.py());
            arguments.set_item("dtype", &dtype)?;
            Ok((elem, dtype.unbind(), arguments.unbind()))
        };
        let dtypes = dtypes.iter().map(dtype).collect::<PyResult<_>>()?;
        Ok(Torch { plain, hooks, is_grad_enabled, forward_ad, dtypes, empty })
    }
}

impl Torch {
    /// How a call with these tensors is made.
    pub(crate) fn call_mode(&self, inputs: &Bound<'_, PyTuple>) -> PyResult<CallMode> {
        let py = inputs.py();
        let mut wants_gradient = false;
        for input in inputs.iter_borrowed().filter(|input| !input.is_none()) {
            let kind = input.get_type();
            if !self.plain.iter().any(|plain| kind.is(plain)) {
                return Ok(CallMode::Traced);
            }
            wants_gradient = wants_gradient || input.getattr(intern!(py, "requires_grad"))?.is_truthy()?;
        }
        for hook in &self.hooks {
            if hook.bind(py).call0()?.is_truthy()? {
                return Ok(CallMode::Traced);
            }
        }
        let is_recorded =
            self.is_forward(py)? || wants_gradient && self.is_grad_enabled.bind(py).call0()?.is_truthy()?;
        Ok(if is_recorded { CallMode::Recorded } else { CallMode::Plain })
    }

    /// Whether tensors may have tangents, which nothing else shows.
    fn is_forward(&self, py: Python<'_>) -> PyResult<bool> {
        let level = self.forward_ad.bind(py).get_item(intern!(py, "_current_level"))?;
        level.map_or(Ok(false), |level| Ok(level.extract::<i64>()? >= 0))
    }

    /// A new tensor on the CPU or on the current GPU, which need not be the one that is meant.
    pub(crate) fn quick<'py>(
        &self,
        py: Python<'py>,
        device: &Device,
        elem: Elem,
        (shape, strides): (&Bound<'py, PyTuple>, &Bound<'py, PyTuple>),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let empty = &self.empty[usize::from(matches!(device, Device::Cuda(_)))];
        let dtype = self.dtypes.iter().find(|(known, ..)| *known == elem).map(|(_, dtype, _)| dtype);
        empty.as_ref().zip(dtype).map(|(empty, dtype)| empty.bind(py).call1((shape, strides, dtype))).transpose()
    }

    /// A new tensor beside another one, which stores `known`.
    pub(crate) fn tensor<'py>(
        &self,
        (like, known): (&Bound<'py, PyAny>, Elem),
        elem: Elem,
        layout: (&Bound<'py, PyTuple>, &Bound<'py, PyTuple>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = like.py();
        let name = intern!(py, "new_empty_strided");
        if elem == known {
            return like.call_method1(name, layout);
        }
        let arguments = self.dtypes.iter().find(|(known, ..)| *known == elem).map(|(.., arguments)| arguments.bind(py));
        like.call_method(name, layout, arguments)
    }
}
