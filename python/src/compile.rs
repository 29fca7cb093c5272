//! Texts of the language as kernels.

use oplus_front::{Item, Position, TextError, TextMistake};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::kernel::Kernel;

/// The first wrong character and behind the last one (line and column, both from 1), the words, and the code.
type Mistake = ((usize, usize), (usize, usize), String, &'static str);

/// The kernels of a text, and its mistakes; one of the two lists is empty. The text is the body of a `scan!` block, or a Rust
/// source file whose blocks are read.
#[pyfunction]
pub(crate) fn compile<'py>(
    py: Python<'py>,
    text: &str,
    is_source: bool,
) -> PyResult<(Bound<'py, PyList>, Vec<Mistake>)> {
    let compile = if is_source { oplus_front::compile_source_file } else { oplus_front::compile };
    match py.detach(|| compile(text)) {
        Ok(items) => Ok((kernels(py, &items)?, vec![])),
        Err(TextError { mistakes }) => Ok((PyList::empty(py), mistakes.into_iter().map(mistake).collect())),
    }
}

/// The kernels of a part of the standard library, `models` or `kernels`.
#[pyfunction]
pub(crate) fn standard<'py>(py: Python<'py>, part: &str) -> PyResult<Bound<'py, PyList>> {
    let text = if part == "models" { oplus_front::MODELS } else { oplus_front::KERNELS };
    // The library's text is part of this program and tested: it has no mistakes.
    let items = py.detach(|| oplus_front::compile(text)).unwrap_or_default();
    kernels(py, &items)
}

fn kernels<'py>(py: Python<'py>, items: &[Item]) -> PyResult<Bound<'py, PyList>> {
    let kernels = items.iter().filter_map(Item::kernel);
    PyList::new(
        py,
        kernels.map(|kernel| Kernel::of(kernel.program.clone(), kernel.docs.written.clone())).collect::<Vec<_>>(),
    )
}

fn mistake(found: TextMistake) -> Mistake {
    let place = |position: Position| (position.line, position.column);
    (place(found.start), place(found.end), found.message, found.code)
}
