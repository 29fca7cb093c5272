//! The types of tensors in signatures. candle has one type for all; the names say what is stored, the numbers how many axes it has.

use candle_core::Tensor;

/// A tensor of floats with this number of axes.
pub type Float<const AXES: usize> = Tensor;

/// A tensor of integers with this number of axes.
pub type Int<const AXES: usize> = Tensor;

/// A tensor of truth values with this number of axes: `u8`, 1 for true and 0 for false.
pub type Bool<const AXES: usize> = Tensor;

/// A float without axes.
pub type FloatScalar = Tensor;

/// An integer without axes.
pub type IntScalar = Tensor;

/// A truth value without axes: `u8`, 1 for true and 0 for false.
pub type BoolScalar = Tensor;
