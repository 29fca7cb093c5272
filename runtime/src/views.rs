//! Views: tensors that show the elements of another one under another shape.

use std::ops::Range;
use std::sync::Arc;

use crate::layout::Layout;
use crate::tensor::{Storage, elem_bytes};
use crate::{Device, Error, Tensor};

impl Tensor {
    /// A view with the axes in another order: axis k of the view is axis `order[k]`.
    ///
    /// ```
    /// # use oplus::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.permute(&[1, 0])?.shape(), [3, 2]);
    /// assert_eq!(x.permute(&[1, 0])?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), oplus::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::View`] unless `order` names every axis once.
    pub fn permute(&self, order: &[usize]) -> Result<Tensor, Error> {
        self.layout.permute(order).map(|layout| self.view(layout))
    }

    /// A view of the indices in `range` along one axis. The axis stays, with the size of the range, which may be 0.
    ///
    /// ```
    /// # use oplus::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let last = x.slice(1, 1..3)?;
    /// assert_eq!((last.shape(), last.to_vec::<i32>()?), (&[2, 2][..], vec![2, 3, 5, 6]));
    /// # Ok::<(), oplus::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::View`] when the axis or an index does not exist.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor, Error> {
        self.layout.slice(axis, range).map(|layout| self.view(layout))
    }

    /// A view of one index along an axis. The axis is gone: of a tensor `[B, T, D]`, `select(1, t)` is `[B, D]`.
    ///
    /// ```
    /// # use oplus::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let column = x.select(1, 2)?;
    /// assert_eq!((column.shape(), column.to_vec::<i32>()?), (&[2][..], vec![3, 6]));
    /// # Ok::<(), oplus::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::View`] when the axis or the index does not exist.
    pub fn select(&self, axis: usize, index: usize) -> Result<Tensor, Error> {
        self.layout.select(axis, index).map(|layout| self.view(layout))
    }

    /// A view without an axis of size 1: of a tensor `[B, 1, D]`, `squeeze(1)` is `[B, D]`.
    ///
    /// # Errors
    /// [`Error::View`] when the axis does not exist or has another size.
    pub fn squeeze(&self, axis: usize) -> Result<Tensor, Error> {
        self.layout.squeeze(axis).map(|layout| self.view(layout))
    }

    /// A view with a further axis of size 1, which becomes axis `axis`: of a tensor `[B, D]`, `unsqueeze(1)` is
    /// `[B, 1, D]` and `unsqueeze(2)` is `[B, D, 1]`.
    ///
    /// # Errors
    /// [`Error::View`] when `axis` is greater than the number of axes.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor, Error> {
        self.layout.unsqueeze(axis).map(|layout| self.view(layout))
    }

    /// A view of the same elements, in row-major order, under another shape, which has as many elements.
    ///
    /// The rule is NumPy's: nothing is copied, so the elements of every new axis must lie at equal distances. Axes may be
    /// divided (`[B, 6]` as `[B, 2, 3]`), and neighbouring axes merged where one goes on where the other ends; a tensor
    /// that is contiguous takes every shape. Where there is no such view, [`Tensor::contiguous`] makes the copy that has it.
    ///
    /// ```
    /// # use oplus::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let column = x.slice(1, 1..2)?;
    /// assert_eq!(column.reshape(&[2])?.to_vec::<i32>()?, [2, 5]);
    /// let turned = x.permute(&[1, 0])?;
    /// assert!(turned.reshape(&[6]).is_err());
    /// assert_eq!(turned.contiguous()?.reshape(&[6])?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), oplus::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Length`] when the shape holds another number of elements, [`Error::TooLarge`] when that is more than
    /// memory has addresses, [`Error::View`] when the elements cannot be seen under the shape without a copy.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor, Error> {
        self.layout.reshape(shape).map(|layout| self.view(layout))
    }

    /// A view with strides of the caller's choice, from the element `offset` of this tensor's memory on. A stride may
    /// be 0 (the same elements at every index) or negative.
    ///
    /// # Errors
    /// [`Error::View`] when an index would leave the memory, [`Error::TooLarge`] when there are more indices than 59 bits
    /// count, however little memory they name.
    pub fn as_strided(&self, shape: &[usize], strides: &[i64], offset: usize) -> Result<Tensor, Error> {
        let elements = self.storage.bytes() / elem_bytes(self.elem);
        Layout::strided(shape, strides, offset, elements).map(|layout| self.view(layout))
    }

    /// The tensor with its elements in row-major order without gaps: itself, sharing its memory, where they lie so
    /// ([`Tensor::is_contiguous`]), else a copy on its device.
    ///
    /// On a GPU the kernel [`copy`](fn@crate::kernels::copy) makes such a copy, queued on the tensor's stream, also while the stream
    /// is captured into a graph. Copies of types of 16 bits make all NaN alike. A program without the feature `kernels` that has no
    /// other source of this kernel copies through the memory of the CPU.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], errors of the device; [`Error::NoKernel`] where the stream is captured and no source has the kernel.
    pub fn contiguous(&self) -> Result<Tensor, Error> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let Storage::Cuda(_, device) = &self.storage else { return self.copied_to(&Device::Cpu) };
        match self.copied_on(device) {
            Err(lacking @ Error::NoKernel { .. }) => {
                device.refuse_in_capture("the copy has no kernel").map_err(|_| lacking)?;
                self.copied_to(&self.device())
            }
            copied => copied,
        }
    }

    fn view(&self, layout: Layout) -> Tensor {
        Tensor { elem: self.elem, layout: Arc::new(layout), storage: self.storage.clone() }
    }
}

impl Layout {
    /// One index along an axis, without the axis.
    fn select(&self, axis: usize, index: usize) -> Result<Layout, Error> {
        let size = *self.shape.get(axis).ok_or_else(|| self.no_axis(axis))?;
        if index >= size {
            return Err(self.no_view(format!("no index {index} along axis {axis}, whose size is {size}")));
        }
        let mut part = self.slice(axis, index..index + 1)?;
        part.drop_axis(axis);
        Ok(part)
    }

    /// Without an axis of size 1.
    fn squeeze(&self, axis: usize) -> Result<Layout, Error> {
        let size = *self.shape.get(axis).ok_or_else(|| self.no_axis(axis))?;
        if size != 1 {
            return Err(self.no_view(format!("axis {axis} has size {size}; only an axis of size 1 can be left out")));
        }
        let mut rest = self.clone();
        rest.drop_axis(axis);
        Ok(rest)
    }

    /// With a further axis of size 1.
    fn unsqueeze(&self, axis: usize) -> Result<Layout, Error> {
        let rank = self.shape.len();
        if axis > rank {
            return Err(self.no_view(format!("a new axis can be one of 0 … {rank}, not {axis}")));
        }
        let mut wider = self.clone();
        // The stride of an axis of size 1 is never walked; this one keeps the strides of a contiguous tensor nested.
        let stride = match (self.shape.get(axis), self.strides.get(axis)) {
            (Some(&size), Some(&stride)) => stride.saturating_mul(i64::try_from(size.max(1)).unwrap_or(i64::MAX)),
            _ => 1,
        };
        wider.shape.insert(axis, 1);
        wider.strides.insert(axis, stride);
        Ok(wider)
    }

    /// The layout of the elements in row-major order under another shape, by NumPy's rule.
    fn reshape(&self, shape: &[usize]) -> Result<Layout, Error> {
        let row_major = Layout { offset: self.offset, ..Layout::contiguous(shape)? };
        if row_major.len() != self.len() {
            return Err(Error::Length { shape: shape.to_vec(), expected: row_major.len(), found: self.len() });
        }
        if self.is_contiguous() {
            return Ok(row_major);
        }
        let strides = self.strides_under(shape).ok_or_else(|| {
            let strides = &self.strides;
            self.no_view(format!("by its strides {strides:?} it is none of shape {shape:?}; `contiguous` makes a copy"))
        })?;
        Ok(Layout { strides, ..row_major })
    }

    /// The strides under which another shape of as many elements, at least one, shows them in their order.
    ///
    /// Every new axis must divide what is left of one old axis, from the last ones on; old axes of which one goes on where
    /// the next one ends count as one.
    fn strides_under(&self, shape: &[usize]) -> Option<Vec<i64>> {
        let mut own = self.merged_axes()?;
        let mut strides = vec![1; shape.len()];
        let (mut left, mut step) = (1, 1);
        for (stride, &size) in strides.iter_mut().zip(shape).rev() {
            let size = i64::try_from(size).ok()?;
            if left == 1 && size > 1 {
                (left, step) = own.pop()?;
            }
            if left % size != 0 {
                return None;
            }
            *stride = step;
            (left, step) = (left / size, step.checked_mul(size)?);
        }
        Some(strides)
    }

    /// Sizes and strides of the axes of more than one element, with neighbours merged where one goes on where the next
    /// one ends.
    fn merged_axes(&self) -> Option<Vec<(i64, i64)>> {
        let mut merged: Vec<(i64, i64)> = vec![];
        for (&size, &stride) in self.shape.iter().zip(&self.strides).filter(|(size, _)| **size != 1) {
            let size = i64::try_from(size).ok()?;
            match merged.last_mut() {
                Some((outer, step)) if Some(*step) == stride.checked_mul(size) => {
                    (*outer, *step) = (outer.checked_mul(size)?, stride);
                }
                _ => merged.push((size, stride)),
            }
        }
        Some(merged)
    }

    fn drop_axis(&mut self, axis: usize) {
        self.shape.remove(axis);
        self.strides.remove(axis);
    }

    fn no_axis(&self, axis: usize) -> Error {
        self.no_view(format!("it has {} axes, no axis {axis}", self.shape.len()))
    }
}
