//! Errors of the runtime as exceptions of Python.

use pyo3::exceptions::{PyMemoryError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{create_exception, intern};

create_exception!(oplus, Error, PyRuntimeError, "A call failed on the device, or no kernel for it is there.");

/// The exception for an error of the runtime. Its words name the tensor, the axis and the sizes.
pub(crate) fn exception(py: Python<'_>, error: &oplus::Error) -> PyErr {
    use oplus::Error as E;
    let text = error.to_string();
    match error {
        E::ShapeMismatch { .. }
        | E::Rank { .. }
        | E::Length { .. }
        | E::TooLarge { .. }
        | E::TooManyElements { .. }
        | E::View { .. }
        | E::Misaligned { .. }
        | E::ReadOnly { .. }
        | E::Overlap { .. }
        | E::SelfOverlap { .. }
        | E::UnknownSize { .. }
        | E::UnknownAxis { .. }
        | E::Ends(_)
        | E::DeviceMismatch { .. } => PyValueError::new_err(text),
        E::WrongElem { .. } | E::ElemMismatch { .. } | E::MissingTensor { .. } | E::Count { .. } | E::UnknownElem => {
            PyTypeError::new_err(text)
        }
        E::NoGradient { .. } => PyNotImplementedError::new_err(text),
        E::OutOfMemory { device, .. } => out_of_memory(py, device, text),
        _ => Error::new_err(text),
    }
}

/// PyTorch's own exception where it is loaded and the memory is a GPU's, so that programs that catch it go on.
fn out_of_memory(py: Python<'_>, device: &str, text: String) -> PyErr {
    let of_torch = || -> PyResult<PyErr> {
        let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.cast_into::<PyDict>()?;
        let torch = modules.get_item("torch")?.ok_or_else(|| PyValueError::new_err("torch is not loaded"))?;
        let kind = torch.getattr("OutOfMemoryError")?;
        Ok(PyErr::from_value(kind.call1((text.clone(),))?))
    };
    match device {
        "cpu" => PyMemoryError::new_err(text),
        _ => of_torch().unwrap_or_else(|_| PyMemoryError::new_err(text)),
    }
}
