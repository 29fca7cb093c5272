//! Memory of the CPU that somebody else owns.
#![allow(unsafe_code)]

use std::any::Any;

use oplus_dsl::Elem;

use crate::element::HostBytes;
use crate::layout::Layout;
use crate::tensor::{Storage, elem_bytes};
use crate::{Error, Tensor};

struct Foreign {
    address: usize,
    bytes: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

impl HostBytes for Foreign {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the contract of `from_host_ptr`.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the contract of `from_host_ptr`.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl Tensor {
    /// Memory of the CPU that somebody else owns, seen under any shape and strides, without copying; index 0, 0, … is element
    /// `offset`.
    ///
    /// # Safety
    /// `address` must be memory of at least `bytes` bytes, which stays valid until `owner` is dropped.
    ///
    /// # Errors
    /// [`Error::View`] when an index would leave the memory.
    pub unsafe fn from_host_ptr_at(
        address: usize,
        bytes: usize,
        elem: Elem,
        (shape, strides, offset): (&[usize], &[i64], usize),
        owner: impl Any + Send + Sync,
    ) -> Result<Tensor, Error> {
        let layout = Layout::strided(shape, strides, offset, bytes / elem_bytes(elem))?;
        let memory = Foreign { address, bytes, _owner: Box::new(owner) };
        Ok(Tensor::of(elem, layout, Storage::host(Box::new(memory))))
    }
}
