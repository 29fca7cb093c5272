//! Looking at a few elements without disturbing what the stream is doing.

use super::capture::relaxed;
use super::memory::DeviceMemory;
use super::stream::CudaDevice;

impl DeviceMemory {
    /// The bytes of elements of `size` bytes at these positions, in elements; waits for the stream's queued work. `None`
    /// while the stream is being captured, which nothing may wait for, and when the device refuses.
    pub(crate) fn peek(&self, device: &CudaDevice, positions: &[usize], size: usize) -> Option<Vec<u8>> {
        if positions.is_empty() {
            return Some(vec![]);
        }
        if device.is_capturing().ok()? {
            return None;
        }
        let mut bytes = vec![0; positions.len() * size];
        let mut rest = &mut bytes[..];
        // A capture elsewhere in the process is no reason to refuse, nor is it touched.
        relaxed(|| {
            for run in positions.chunk_by(|a, b| *b == a + 1) {
                let (part, tail) = std::mem::take(&mut rest).split_at_mut(run.len() * size);
                self.download(device, run[0] * size, part).ok()?;
                rest = tail;
            }
            Some(())
        })
        .ok()??;
        Some(bytes)
    }
}
