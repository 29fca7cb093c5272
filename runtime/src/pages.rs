//! Zeroed memory of the host.
//!
//! The system makes a page of new memory when something first writes to it, which takes longer than writing. Large memory is asked for
//! in large pages, where the system has them.

use crate::element::HostBytes;
use crate::room::{Refused, zeros};

/// Zeroed memory of so many bytes, at an address that suits every element type.
///
/// # Errors
/// [`Refused`].
pub(crate) fn zeroed(bytes: usize) -> Result<Box<dyn HostBytes>, Refused> {
    #[cfg(target_os = "linux")]
    if let Some(pages) = large::Pages::new(bytes) {
        return Ok(Box::new(pages));
    }
    Ok(Box::new(zeros(bytes)?))
}

#[cfg(target_os = "linux")]
mod large {
    use memmap2::{Advice, MmapMut};

    use crate::element::HostBytes;

    /// The least bytes for which it is done: two large pages, so that there is a whole one.
    const LEAST: usize = 4 << 20;

    /// Memory of its own in large pages.
    pub(super) struct Pages(MmapMut);

    impl Pages {
        /// `None` for few bytes, or where the system refuses.
        pub(super) fn new(bytes: usize) -> Option<Pages> {
            let memory = MmapMut::map_anon(Some(bytes).filter(|bytes| *bytes >= LEAST)?).ok()?;
            // A system without large pages refuses the advice; the memory is there all the same.
            memory.advise(Advice::HugePage).unwrap_or_default();
            Some(Pages(memory))
        }
    }

    impl HostBytes for Pages {
        fn bytes(&self) -> &[u8] {
            &self.0
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_memory_is_zero_and_whole() {
        for bytes in [0, 1, 4095, (4 << 20) - 1, 4 << 20, (9 << 20) + 3] {
            let mut memory = zeroed(bytes).unwrap();
            assert!(memory.bytes().len() >= bytes && memory.bytes().iter().all(|byte| *byte == 0));
            assert_eq!(memory.bytes().as_ptr().align_offset(8), 0);
            memory.bytes_mut().fill(7);
            assert!(memory.bytes().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        assert!(zeroed(usize::MAX / 2).is_err());
    }
}
