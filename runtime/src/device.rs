//! Where tensors live and calls run.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use crate::Error;
use crate::cuda::{self, CudaDevice};

/// The CPU, or a stream of a GPU.
///
/// A call runs where its tensors are. On a GPU it is queued on their stream and returns at once.
///
/// ```
/// use oplus::{Device, Tensor};
///
/// let device = Device::default(); // the first GPU if there is one
/// let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3])?.to_device(&device)?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), oplus::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Device {
    /// The threads of this process.
    Cpu,
    /// A stream of a GPU.
    Cuda(CudaDevice),
}

impl Device {
    /// The GPU of that ordinal, on a stream that is made at the first use and shared by all who ask for it.
    ///
    /// # Errors
    /// [`Error::NoCuda`] without a driver, without that GPU or without the feature `gpu`, [`Error::DeviceTooOld`] for one before compute
    /// capability 8.0.
    pub fn cuda(ordinal: usize) -> Result<Device, Error> {
        CudaDevice::new(ordinal).map(Device::Cuda)
    }

    /// The caller's stream, in the caller's context. Work is queued on it in the order of the calls.
    ///
    /// `CU_STREAM_PER_THREAD` names another stream in every thread. In its place work is queued on a stream of the
    /// library's own; in every call that one first waits for the stream of the calling thread, which then waits for it.
    /// Another stream saves these waits.
    ///
    /// # Errors
    /// [`Error::DeviceTooOld`] for a GPU before compute capability 8.0.
    pub fn from_stream(stream: Arc<CudaStream>) -> Result<Device, Error> {
        CudaDevice::from_stream(stream).map(Device::Cuda)
    }

    /// How many GPUs [`Device::cuda`] can name; 0 on a machine without a driver.
    pub fn cuda_count() -> usize {
        cuda::device_count()
    }

    /// Does a call's work in the order of the caller's stream.
    pub(crate) fn in_order<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match self {
            Device::Cpu => work(),
            Device::Cuda(device) => device.in_order(work),
        }
    }

    /// Waits until everything queued on the device has been done, and reports its faults.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when a kernel has failed, [`Error::Captured`] while the stream is being captured.
    pub fn synchronize(&self) -> Result<(), Error> {
        match self {
            Device::Cpu => Ok(()),
            Device::Cuda(device) => device.synchronize(),
        }
    }
}

impl Default for Device {
    /// The first GPU that can run kernels, else the CPU.
    fn default() -> Device {
        (0..Device::cuda_count()).find_map(|ordinal| Device::cuda(ordinal).ok()).unwrap_or(Device::Cpu)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(device) => device.fmt(f),
        }
    }
}
