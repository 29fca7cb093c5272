//! What the L2 cache holds when a run begins.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use oplus::{Device, Elem, Tensor, scan};

use super::BenchError;

/// The bytes that are overwritten between runs; several times the L2 cache.
const BYTES: usize = 256 << 20;
const ROWS: usize = 4096;

scan! {
    /// The sum of each row.
    fn row_sums(x: f32[R, T]) -> (y: f32[R]) {
        y = sum(T, x);
    }
}

/// Flushes the cache.
pub(super) struct Flush {
    stream: Arc<CudaStream>,
    overwritten: CudaSlice<u8>,
    clean: Option<Clean>,
}

/// Memory that is read, so that the cache holds nothing that has yet to be written.
struct Clean {
    read: Tensor,
    sums: Tensor,
}

impl Flush {
    /// Memory to overwrite between runs. It stays in the cache in part, and kernels that only read then wait while it is written to memory; with `clean`,
    /// other memory is read after it.
    ///
    /// # Errors
    /// Faults of the driver.
    pub(super) fn new(stream: &Arc<CudaStream>, clean: bool) -> Result<Flush, BenchError> {
        let clean = if clean { Some(Clean::new(stream)?) } else { None };
        Ok(Flush { stream: stream.clone(), overwritten: stream.alloc_zeros(BYTES)?, clean })
    }

    /// Flushes the cache, in the order of the stream.
    ///
    /// # Errors
    /// Faults of the driver.
    pub(super) fn run(&mut self) -> Result<(), BenchError> {
        self.stream.memset_zeros(&mut self.overwritten)?;
        if let Some(Clean { read, sums }) = &self.clean {
            row_sums::kernel().call_into(&[Some(read)], &[sums])?;
        }
        Ok(())
    }

    /// Whether nothing has yet to be written.
    pub(super) fn is_clean(&self) -> bool {
        self.clean.is_some()
    }
}

impl Clean {
    fn new(stream: &Arc<CudaStream>) -> Result<Clean, oplus::Error> {
        let device = Device::from_stream(stream.clone())?;
        let read = Tensor::zeros(Elem::F32, &[ROWS, BYTES / 4 / ROWS], &device)?;
        Ok(Clean { read, sums: Tensor::zeros(Elem::F32, &[ROWS], &device)? })
    }
}
