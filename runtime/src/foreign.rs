//! Memory of the CPU that somebody else owns.
#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

use oplus_dsl::Elem;

use crate::element::HostBytes;
use crate::layout::Layout;
use crate::tensor::{HostMemory, Storage};
use crate::{Error, Tensor};

/// Memory that is valid until the owner is dropped. The address of no bytes may be anything.
struct Foreign {
    address: usize,
    bytes: usize,
    is_writable: bool,
    _owner: Box<dyn Any + Send + Sync>,
}

impl HostBytes for Foreign {
    fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return bytemuck::cast_slice::<u64, u8>(&[]);
        }
        // SAFETY: the caller of `from_host_ptr` has vouched for the memory while the owner lives, and for nobody writing to it
        // while a call reads it.
        unsafe { from_raw_parts(with_exposed_provenance(self.address), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable, "the memory is read-only");
        if self.bytes == 0 {
            return bytemuck::cast_slice_mut::<u64, u8>(&mut []);
        }
        // SAFETY: as above; nobody else uses the memory while a call writes it.
        unsafe { from_raw_parts_mut(with_exposed_provenance_mut(self.address), self.bytes) }
    }
}

impl Tensor {
    /// Memory of the CPU that somebody else owns, seen under any shape and strides, without copying. `address` is that of
    /// index 0, 0, …, from which strides run upwards. Where some run backwards, give the whole memory as one axis and then
    /// [`Tensor::as_strided`]. `owner` is dropped with the last handle.
    ///
    /// ```
    /// use oplus::{Elem, Tensor};
    ///
    /// let owner = vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// let address = owner.as_ptr().expose_provenance();
    /// // SAFETY: the vector's memory stays where it is until the tensor drops the vector.
    /// let x = unsafe { Tensor::from_host_ptr(address, 24, Elem::F32, (&[3, 2], &[1, 3]), owner)? };
    /// assert_eq!(x.host_ptr(), Some(address));
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// # Ok::<(), oplus::Error>(())
    /// ```
    ///
    /// # Safety
    /// `address` must be the exposed address of at least `bytes` initialised bytes, which stay valid until `owner` is dropped.
    /// Nobody else may write them while a call or copy reads the tensor, nor use them while a call writes it.
    ///
    /// # Errors
    /// [`Error::Misaligned`]; [`Error::View`] when an index would leave the memory; [`Error::WrongElem`] for [`Elem::Call`],
    /// [`Elem::State`] and [`Elem::Wide`].
    pub unsafe fn from_host_ptr(
        address: usize,
        bytes: usize,
        elem: Elem,
        layout: (&[usize], &[i64]),
        owner: impl Any + Send + Sync,
    ) -> Result<Tensor, Error> {
        let (memory, layout) =
            Foreign { address, bytes, is_writable: true, _owner: Box::new(owner) }.seen(elem, layout)?;
        Ok(Tensor::of(elem, layout, Storage::Host(Arc::new(HostMemory::new(memory)))))
    }

    /// Like [`Tensor::from_host_ptr`] for memory that may only be read: as an output the tensor is refused with
    /// [`Error::ReadOnly`].
    ///
    /// # Safety
    /// `address` must be the exposed address of at least `bytes` initialised bytes, which stay valid until `owner` is dropped.
    /// Nobody may write them while a call or copy reads the tensor.
    ///
    /// # Errors
    /// The errors of [`Tensor::from_host_ptr`].
    pub unsafe fn from_host_ptr_read_only(
        address: usize,
        bytes: usize,
        elem: Elem,
        layout: (&[usize], &[i64]),
        owner: impl Any + Send + Sync,
    ) -> Result<Tensor, Error> {
        let (memory, layout) =
            Foreign { address, bytes, is_writable: false, _owner: Box::new(owner) }.seen(elem, layout)?;
        Ok(Tensor::of(elem, layout, Storage::Host(Arc::new(HostMemory::read_only(memory)))))
    }
}

impl Foreign {
    /// The memory as elements of a type, under a shape and strides.
    fn seen(self, elem: Elem, (shape, strides): (&[usize], &[i64])) -> Result<(Box<dyn HostBytes>, Layout), Error> {
        let Some(size) = elem.bytes() else {
            let expected = "a storable type".into();
            return Err(Error::WrongElem { tensor: "tensor".into(), expected, found: elem });
        };
        let layout = Layout::strided(shape, strides, 0, self.bytes / size)?;
        if self.bytes > 0 && !self.address.is_multiple_of(size) {
            return Err(Error::Misaligned { address: self.address, elem, align: size });
        }
        Ok((Box::new(self), layout))
    }
}
