//! Bringing memory to the nearest caches.
//!
//! Parts of a tile begin too far apart for the processor to see which lines of the cache are next. So the lines of a tile are touched in the order
//! of memory first; machine code asks for those of its later lanes itself. All tensors go on together, since several streams are fetched faster than one.

use std::hint::black_box;

use bytemuck::{NoUninit, cast_slice};

use super::values::Slice;

/// How many bytes a line of the cache has.
pub(super) const LINE: usize = 64;

/// Reads something of every line of some tensors.
pub(super) fn read(tensors: &[Slice<'_>]) {
    let bytes: Vec<&[u8]> = tensors.iter().map(|tensor| bytes(*tensor)).collect();
    let longest = bytes.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
    let mut any = 0;
    for line in (0..longest).step_by(LINE) {
        for byte in bytes.iter().filter_map(|bytes| bytes.get(line)) {
            any |= byte;
        }
    }
    black_box(any);
}

/// Writes something to every line of memory that is written as a whole later.
pub(super) fn write<T: NoUninit + Default>(tensors: &mut [&mut [T]]) {
    let longest = tensors.iter().map(|tensor| tensor.len()).max().unwrap_or(0);
    for line in (0..longest).step_by((LINE / size_of::<T>()).max(1)) {
        for number in tensors.iter_mut().filter_map(|tensor| tensor.get_mut(line)) {
            *number = T::default();
        }
    }
}

/// The bytes of a tensor.
fn bytes(tensor: Slice<'_>) -> &[u8] {
    match tensor {
        Slice::F64(all) => cast_slice(all),
        Slice::F32(all) => cast_slice(all),
        Slice::I32(all) => cast_slice(all),
        Slice::I64(all) => cast_slice(all),
        Slice::U32(all) => cast_slice(all),
        Slice::U64(all) => cast_slice(all),
        Slice::Bool(all) => cast_slice(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_of_each_line_is_touched() {
        let (mut long, mut short) = (vec![1.0_f32; 40], vec![1.0_f32; 17]);
        write(&mut [&mut long[..], &mut short[..], &mut []]);
        let touched = |all: &[f32]| (0..all.len()).filter(|k| all[*k] == 0.0).collect::<Vec<_>>();
        assert_eq!((touched(&long), touched(&short)), (vec![0, 16, 32], vec![0, 16]));
        read(&[Slice::F32(&long), Slice::Bool(&[true; 3]), Slice::F64(&[])]);
        assert_eq!(bytes(Slice::F64(&[1.0; 5])).len(), 40);
    }
}
