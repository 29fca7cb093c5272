//! Parts of arrays.

use std::ops::Range;

use crate::interpret::Array;

/// The given indices of one axis of an array of floats, and all of the others; the whole array without such an axis.
pub fn cut(array: &Array, axis: Option<usize>, part: Range<usize>) -> Array {
    let Some(axis) = axis else { return array.clone() };
    let (n, inner) = (array.sizes[axis], array.sizes[axis + 1..].iter().product::<usize>());
    let rows = array.as_floats().expect("floats").chunks(n * inner);
    let kept: Vec<f64> = rows.flat_map(|row| row[part.start * inner..part.end * inner].to_vec()).collect();
    let mut sizes = array.sizes.clone();
    sizes[axis] = part.len();
    Array::floats(&sizes, kept)
}
