//! Context managers: what is so of the calls of a thread inside a `with` block.

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    static ORDERED: Cell<usize> = const { Cell::new(0) };
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

macro_rules! mode {
    ($name:ident, $guard:ty, $start:path, $count:ident, $is:ident, $doc:literal, $is_doc:literal) => {
        #[doc = $doc]
        #[pyclass(unsendable, module = "oplus._native")]
        #[derive(Default)]
        pub(crate) struct $name {
            guards: Vec<$guard>,
        }

        #[pymethods]
        impl $name {
            #[new]
            fn new() -> $name {
                $name::default()
            }

            fn __enter__(&mut self) {
                $count.set($count.get() + 1);
                self.guards.push($start());
            }

            #[pyo3(signature = (*_exception))]
            fn __exit__(&mut self, _exception: &Bound<'_, PyAny>) {
                if self.guards.pop().is_some() {
                    $count.set($count.get().saturating_sub(1));
                }
            }
        }

        #[doc = $is_doc]
        #[pyfunction]
        pub(crate) fn $is() -> bool {
            $count.get() > 0
        }
    };
}

mode!(
    Ordered,
    oplus::Ordered,
    oplus::ordered,
    ORDERED,
    is_ordered,
    "Calls inside the `with` block combine in order, see `oplus.ordered`.",
    "Whether calls of this thread are ordered."
);
mode!(
    Recording,
    oplus::Recording,
    oplus::record,
    RECORDING,
    is_recording,
    "Calls inside the `with` block save states for their gradients, see `oplus.record`.",
    "Whether calls of this thread save states for their gradients."
);
