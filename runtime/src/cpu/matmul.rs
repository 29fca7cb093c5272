//! Products of matrices, by the crate `matrixmultiply`, which `ndarray` calls safely.
//!
//! An element's terms are added in an order that depends on their number and on the processor's instruction set only.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar, ShapeBuilder, ShapeError};

use super::CpuError;
use super::values::Scalar;

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a, T> {
    /// Its elements, from the first one on.
    pub(super) elements: &'a [T],
    /// From a row to the next, and from a column to the next.
    pub(super) strides: [usize; 2],
}

impl<'a, T> Matrix<'a, T> {
    fn view(self, rows: usize, columns: usize) -> Result<ArrayView2<'a, T>, ShapeError> {
        ArrayView2::from_shape((rows, columns).strides(self.strides.into()), self.elements)
    }
}

/// The size of a product of two matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductSize {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// The terms of each element's sum.
    pub(super) terms: usize,
}

/// The most rows or columns to which the library fills its tiles up.
const FILLED: usize = 64;

/// Refuses products of these rows, columns and terms for whose factors there is no memory: the library copies them, and ends the process
/// when it gets none.
///
/// # Errors
/// [`CpuError::OutOfMemory`].
pub(super) fn check_room<T>(size: ProductSize) -> Result<(), CpuError> {
    let ProductSize { rows, columns, terms } = size;
    let elements = terms.saturating_mul(rows.saturating_add(columns).saturating_add(2 * FILLED));
    let bytes = elements.saturating_mul(size_of::<T>());
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| CpuError::OutOfMemory { bytes })
}

/// Adds the product of two matrices to a third, whose elements begin the slice.
pub(super) fn add_product<T: Scalar + LinalgScalar>(
    to: &mut [T],
    strides: [usize; 2],
    [left, right]: [Matrix<'_, T>; 2],
    ProductSize { rows, columns, terms }: ProductSize,
) {
    if rows == 0 || columns == 0 || terms == 0 {
        return;
    }
    let to = ArrayViewMut2::from_shape((rows, columns).strides(strides.into()), to);
    match (left.view(rows, terms), right.view(terms, columns), to) {
        (Ok(left), Ok(right), Ok(mut to)) => general_mat_mul(T::one(), &left, &right, T::one(), &mut to),
        _ => unreachable!("tiles lie within their tensors, and a result's elements are apart"),
    }
}
