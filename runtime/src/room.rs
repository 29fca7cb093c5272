//! Memory of the host, which may be refused.

use crate::Error;
use crate::cpu::CpuError;

/// Memory that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Refused {
    bytes: usize,
}

impl From<Refused> for CpuError {
    fn from(Refused { bytes }: Refused) -> CpuError {
        CpuError::OutOfMemory { bytes }
    }
}

impl From<Refused> for Error {
    fn from(Refused { bytes }: Refused) -> Error {
        Error::OutOfMemory { bytes, device: "cpu".into() }
    }
}

/// Makes sure that a vector can hold so many elements in all.
pub(crate) fn reserve<T>(all: &mut Vec<T>, len: usize) -> Result<(), Refused> {
    let refused = Refused { bytes: len.saturating_mul(size_of::<T>()) };
    all.try_reserve_exact(len.saturating_sub(all.len())).map_err(|_| refused)
}

/// Room for so many elements, empty.
pub(crate) fn room<T>(len: usize) -> Result<Vec<T>, Refused> {
    let mut all = Vec::new();
    reserve(&mut all, len)?;
    Ok(all)
}

/// An element, so many times.
pub(crate) fn repeated<T: Clone>(element: T, len: usize) -> Result<Vec<T>, Refused> {
    let mut all = room(len)?;
    all.resize(len, element);
    Ok(all)
}

/// Zeros of at least so many bytes, at an address that suits every element type.
pub(crate) fn zeros(bytes: usize) -> Result<Vec<u64>, Refused> {
    bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(8)).map_err(|()| Refused { bytes })
}
