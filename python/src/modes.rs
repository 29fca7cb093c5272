//! Context managers: what is so of the calls of a thread inside a `with` block.

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    static ORDERED: Cell<usize> = const { Cell::new(0) };
}

/// Calls inside the `with` block combine in order, see `oplus.ordered`.
#[pyclass(unsendable, module = "oplus._native")]
#[derive(Default)]
pub(crate) struct Ordered {
    guards: Vec<oplus::Ordered>,
}

#[pymethods]
impl Ordered {
    #[new]
    fn new() -> Ordered {
        Ordered::default()
    }

    fn __enter__(&mut self) {
        ORDERED.set(ORDERED.get() + 1);
        self.guards.push(oplus::ordered());
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, PyAny>) {
        if self.guards.pop().is_some() {
            ORDERED.set(ORDERED.get().saturating_sub(1));
        }
    }
}

/// Whether calls of this thread are ordered.
#[pyfunction]
pub(crate) fn is_ordered() -> bool {
    ORDERED.get() > 0
}
