//! PyTorch's allocator of GPU memory, for what a call needs beside its tensors.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaStream;
use oplus::{Allocated, CudaDevice, Error};
use pyo3::prelude::*;

/// The functions of Python that give and free memory.
struct Functions {
    allocate: Py<PyAny>,
    free: Py<PyAny>,
}

/// The functions that are in use.
static FUNCTIONS: Mutex<Option<Arc<Functions>>> = Mutex::new(None);

/// From now on `allocate(bytes, ordinal, stream)` gives memory on streams of other libraries and `free(address)` frees it, in
/// the order of that stream; addresses are multiples of 256.
#[pyfunction]
pub(crate) fn use_allocator(allocate: Py<PyAny>, free: Py<PyAny>) {
    *FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(Functions { allocate, free }));
}

/// Lets a stream of another library take its memory from there.
pub(crate) fn install(device: &CudaDevice) {
    let functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(functions) = functions {
        device.set_allocator(Some(Arc::new(Allocator(functions))));
    }
}

struct Allocator(Arc<Functions>);

// SAFETY: `use_allocator` asks for it of the functions: PyTorch's caching allocator gives whole blocks of 512 bytes, which it
// reuses in the order of the stream that they were made for.
unsafe impl oplus::Allocate for Allocator {
    fn allocate(&self, bytes: usize, stream: &Arc<CudaStream>) -> Result<Allocated, Error> {
        let ordinal = stream.context().ordinal();
        let address = Python::attach(|py| {
            let given = self.0.allocate.call1(py, (bytes, ordinal, stream.cu_stream() as usize))?;
            given.extract::<u64>(py)
        });
        let address = address.map_err(|_| Error::OutOfMemory { bytes, device: format!("cuda:{ordinal}") })?;
        Ok(Allocated { address, owner: Box::new(Owner { address, functions: self.0.clone() }) })
    }
}

/// Frees its memory when it is dropped.
struct Owner {
    address: u64,
    functions: Arc<Functions>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // After the interpreter has ended the process's memory goes with it.
        let freed = Python::try_attach(|py| self.functions.free.call1(py, (self.address,)).map(drop));
        if let Some(Err(error)) = freed {
            Python::attach(|py| error.write_unraisable(py, None));
        }
    }
}
