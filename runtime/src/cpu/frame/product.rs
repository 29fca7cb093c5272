//! Products of the matrices of a tile.

use std::borrow::Cow;

use ndarray::LinalgScalar;

use crate::cpu::CpuError;
use crate::cpu::loops::{Loops, PerAxis};
use crate::cpu::map::is_finite;
use crate::cpu::matmul::{self, ProductSize, add_product};
use crate::cpu::memory;
use crate::cpu::tile::{Load, Matrix, MatrixSource, Product, Reg, size, strides};
use crate::cpu::values::{Scalar, Slice, Values};
use crate::cpu::view::Data;

use super::Frame;

/// A matrix of a tile, with strides along all axes of the tile.
#[derive(Clone, Debug)]
pub(super) struct Block<'a, T: Scalar> {
    pub(super) elements: Cow<'a, [T]>,
    pub(super) dims: u64,
    pub(super) strides: PerAxis<isize>,
    /// Where it is zero whatever it is multiplied with.
    pub(super) mask: Option<(&'a [bool], PerAxis<isize>)>,
}

/// The axes of a sum of products.
#[derive(Clone, Copy)]
pub(super) struct SumAxes {
    /// The axis that is summed over.
    pub(super) axis: usize,
    /// The axes of the result: bit k for axis k of the tile.
    pub(super) dims: u64,
}

/// The axes along which a product is computed.
struct Nest {
    /// The axes outside: extents, and the distances in the result, the left and the right matrix.
    outer: Loops<3>,
    size: ProductSize,
    /// The distances of rows and columns.
    to: [usize; 2],
    left: [usize; 2],
    right: [usize; 2],
}

impl<'a> Frame<'a> {
    /// Computes a product of matrices into a register.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn product(&self, product: &Product, result: Reg, dst: &mut Values) -> Result<(), CpuError> {
        let (dims, n) = (self.code.registers[result.0].dims, self.len(result));
        match dst {
            Values::F32(_) => self.product_of::<f32>(product, dims, dst.room(n)?),
            _ => self.product_of::<f64>(product, dims, dst.room(n)?),
        }
    }

    fn product_of<T: Scalar + LinalgScalar>(
        &self,
        product: &Product,
        dims: u64,
        dst: &mut [T],
    ) -> Result<(), CpuError> {
        dst.fill(T::zero());
        if self.is_zero(&product.left) || self.is_zero(&product.right) {
            return Ok(());
        }
        let [left, right] = [self.block(&product.left)?, self.block(&product.right)?];
        self.add_product(SumAxes { axis: product.axis, dims }, dst, [&left, &right])
    }

    /// The elements of a matrix: where they lie, if they are not to be converted or turned round.
    pub(super) fn block<T: Scalar>(&self, matrix: &Matrix) -> Result<Block<'_, T>, CpuError> {
        let (elements, strides) = match &matrix.of {
            MatrixSource::Register(register) => (Cow::Borrowed(self.get(*register).of::<T>()), self.strides(*register)),
            MatrixSource::Tensor(load) => self.block_of_tensor::<T>(load, matrix.dims)?,
        };
        let mask = matrix.mask.filter(|mask| self.one_answer(*mask) != Some(true)).map(|mask| self.mask(mask));
        Ok(Block { elements, dims: matrix.dims, strides, mask })
    }

    /// Whether all of a matrix is hidden.
    pub(super) fn is_zero(&self, matrix: &Matrix) -> bool {
        matrix.mask.is_some_and(|mask| self.one_answer(mask) == Some(false))
    }

    /// The truth values of a register, with their strides.
    pub(super) fn mask(&self, register: Reg) -> (&[bool], PerAxis<isize>) {
        (self.get(register).of::<bool>(), self.strides(register))
    }

    fn block_of_tensor<T: Scalar>(&self, load: &Load, dims: u64) -> Result<(Cow<'_, [T]>, PerAxis<isize>), CpuError> {
        let place = self.place(load);
        let source: Data<'a> = self.sources[load.source];
        let is_whole = place.extents[..] == self.tile.extents[..];
        let is_forward = place.strides.iter().all(|stride| *stride >= 0);
        if let (true, true, Some(elements)) = (is_whole, is_forward, elements::<T>(source)) {
            let elements = elements.get(place.at as usize..).unwrap_or_default();
            return Ok((Cow::Borrowed(elements), place.strides));
        }
        let own = strides(dims, &self.tile.extents);
        let n = size(dims, &self.tile.extents);
        let axes = (0..own.len()).filter(|k| dims >> k & 1 == 1);
        let loops = Loops::new(axes.map(|k| (place.extents[k], [own[k], place.strides[k]]))).unit();
        let skipped: isize = (0..own.len()).map(|k| place.skipped[k] as isize * own[k]).sum();
        let mut values = Values::empty(T::erase(&[]).ty());
        values.room::<T>(n)?.fill(T::default());
        memory::load(&loops, &mut values, n, source, [skipped, place.at])?;
        let elements = T::cast_mut(&mut values).map(std::mem::take).unwrap_or_default();
        Ok((Cow::Owned(elements), own))
    }

    /// Adds the sum over an axis of left·right to a block.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn add_product<T: Scalar + LinalgScalar>(
        &self,
        over: SumAxes,
        to: &mut [T],
        [left, right]: [&Block<'_, T>; 2],
    ) -> Result<(), CpuError> {
        let is_lost = |masked: &Block<'_, T>, other: &Block<'_, T>| masked.mask.is_some() && !self.is_finite(other);
        if is_lost(left, right) || is_lost(right, left) {
            self.add_seen(over, to, [left, right]);
            return Ok(());
        }
        let nest = self.nest_of(over, [left, right]);
        matmul::check_room::<T>(nest.size)?;
        nest.outer.each(|[t, l, r]| {
            let matrices = [(left, l, nest.left), (right, r, nest.right)]
                .map(|(block, at, strides)| matmul::Matrix { elements: &block.elements[at..], strides });
            add_product(&mut to[t..], nest.to, matrices, nest.size);
        });
        Ok(())
    }

    fn nest_of<T: Scalar>(&self, over: SumAxes, [left, right]: [&Block<'_, T>; 2]) -> Nest {
        let SumAxes { axis, dims } = over;
        let (extents, to) = (&self.tile.extents, strides(dims, &self.tile.extents));
        let within = |k: usize, dims: u64| dims >> k & 1 == 1;
        let own = |of: u64, other: u64| {
            (0..extents.len()).rev().filter(move |k| within(*k, dims & of & !other) && extents[*k] > 1)
        };
        // Rows and columns are the innermost axes of their matrices, with those outside that continue them.
        let merge = |axes: Vec<usize>, block: &Block<'_, T>| {
            let Some(first) = axes.first().copied() else { return (1, [0, 0], vec![]) };
            let (mut n, mut used) = (extents[first], vec![first]);
            for k in &axes[1..] {
                let continues = |strides: &[isize]| strides[*k] == strides[first] * n as isize;
                if !continues(&to) || !continues(&block.strides) {
                    break;
                }
                n *= extents[*k];
                used.push(*k);
            }
            (n, [to[first] as usize, block.strides[first] as usize], used)
        };
        let (rows, of_rows, by_rows) = merge(own(left.dims, right.dims).collect(), left);
        let (columns, of_columns, by_columns) = merge(own(right.dims, left.dims).collect(), right);
        let is_outer = |k: &usize| *k != axis && within(*k, dims) && !by_rows.contains(k) && !by_columns.contains(k);
        let outer = (0..extents.len()).filter(is_outer);
        Nest {
            outer: Loops::new(outer.map(|k| (extents[k], [to[k], left.strides[k], right.strides[k]]))).singles(),
            size: ProductSize { rows, columns, terms: extents[axis] },
            to: [of_rows[0], of_columns[0]],
            left: [of_rows[1], left.strides[axis] as usize],
            right: [right.strides[axis] as usize, of_columns[1]],
        }
    }

    /// Whether all elements of a matrix are finite.
    fn is_finite<T: Scalar>(&self, block: &Block<'_, T>) -> bool {
        let axes = (0..self.tile.extents.len()).filter(|k| block.dims >> k & 1 == 1);
        let loops = Loops::new(axes.map(|k| (self.tile.extents[k], [block.strides[k]]))).unit();
        is_finite(&loops, &block.elements)
    }

    /// Adds the sum over an axis of those left·right of which neither is masked.
    fn add_seen<T: Scalar + LinalgScalar>(&self, over: SumAxes, to: &mut [T], [left, right]: [&Block<'_, T>; 2]) {
        let SumAxes { axis, dims } = over;
        let strides_to = strides(dims, &self.tile.extents);
        let all = dims | 1 << axis;
        let none = PerAxis::from_elem(0, strides_to.len());
        let of_mask =
            |block: &Block<'_, T>| block.mask.as_ref().map_or_else(|| none.clone(), |(_, strides)| strides.clone());
        let masks = [of_mask(left), of_mask(right)];
        let axes = (0..strides_to.len()).filter(|k| all >> k & 1 == 1);
        let strides = |k: usize| [strides_to[k], left.strides[k], right.strides[k], masks[0][k], masks[1][k]];
        let loops = Loops::new(axes.map(|k| (self.tile.extents[k], strides(k)))).singles();
        let is_seen = |block: &Block<'_, T>, at: usize| block.mask.as_ref().is_none_or(|(mask, _)| mask[at]);
        loops.each(|[t, l, r, of_left, of_right]| {
            if is_seen(left, of_left) && is_seen(right, of_right) {
                to[t] = to[t] + left.elements[l] * right.elements[r];
            }
        });
    }
}

/// The elements of a tensor, if they are values of the type.
fn elements<T: Scalar>(data: Data<'_>) -> Option<&[T]> {
    let all = match data {
        Data::F32(all) => Slice::F32(all),
        Data::F64(all) => Slice::F64(all),
        _ => return None,
    };
    T::cast(all)
}
