//! Texts of the language as kernels.

use proc_macro2::TokenStream;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::kernel::Kernel;

/// The kernels of a text, and its mistakes: of each the line and column of its first character and behind its last one, from
/// 1, the words, and the code. One of the two lists is empty.
#[pyfunction]
pub(crate) fn compile<'py>(py: Python<'py>, text: &str) -> PyResult<(Bound<'py, PyList>, Vec<Mistake>)> {
    let compiled = py.detach(|| {
        let tokens: TokenStream = text.parse().map_err(|_| vec![])?;
        oplus_front::programs(tokens).map_err(|mistakes| mistakes.iter().map(mistake).collect::<Vec<_>>())
    });
    match compiled {
        Ok(programs) => Ok((PyList::new(py, programs.into_iter().map(Kernel::of))?, vec![])),
        Err(mistakes) => Ok((PyList::empty(py), mistakes)),
    }
}

type Mistake = ((usize, usize), (usize, usize), String, &'static str);

fn mistake(found: &oplus_front::Diagnostic) -> Mistake {
    let (start, end) = (found.extent.first.start(), found.extent.last.end());
    let words = found.mistake.to_string();
    ((start.line, start.column + 1), (end.line, end.column + 1), words, found.mistake.code())
}

/// The kernels of the standard library.
#[pyfunction]
pub(crate) fn models(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, oplus_front::model_programs().into_iter().map(Kernel::of))
}
