//! Tensors in memory of the CPU that somebody else owns.
#![allow(unsafe_code, reason = "the tests vouch for memory of their own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oplus::kernels::cumsum;
use oplus::{Elem, Element, Error, Tensor};

/// Counts how often it is dropped.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The elements under a shape, which may be written.
fn borrowed<T: Element>(elements: &mut [T], shape: &[usize], strides: &[i64]) -> Result<Tensor, Error> {
    let (address, bytes) = (elements.as_mut_ptr().expose_provenance(), size_of_val(elements));
    // SAFETY: every test keeps the elements longer than the tensor, and uses them between calls only.
    unsafe { Tensor::from_host_ptr(address, bytes, T::ELEM, (shape, strides), ()) }
}

/// The elements under a shape, which may only be read.
fn lent<T: Element>(elements: &[T], shape: &[usize], strides: &[i64]) -> Result<Tensor, Error> {
    let (address, bytes) = (elements.as_ptr().expose_provenance(), size_of_val(elements));
    // SAFETY: as above.
    unsafe { Tensor::from_host_ptr_read_only(address, bytes, T::ELEM, (shape, strides), ()) }
}

#[test]
fn calls_read_and_write_the_memory_itself() {
    let (x, mut y) = ([1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0_f32; 6]);
    // The input is the transpose of what lies in memory.
    let input = lent(&x, &[2, 3], &[1, 2]).unwrap();
    let output = borrowed(&mut y, &[2, 3], &[3, 1]).unwrap();
    cumsum::kernel().call_into(&[Some(&input)], &[&output]).unwrap();
    drop((input, output));
    assert_eq!(y, [1.0, 4.0, 9.0, 2.0, 6.0, 12.0]);
}

#[test]
fn addresses_are_those_of_the_first_element() {
    let mut x = [0_i64, 1, 2, 3, 4, 5];
    let address = x.as_ptr().addr();
    let tensor = borrowed(&mut x, &[2, 3], &[3, 1]).unwrap();
    assert_eq!((tensor.host_ptr(), tensor.device_ptr()), (Some(address), None));
    assert_eq!(tensor.slice(1, 2..3).unwrap().host_ptr(), Some(address + 16));
    let backwards = tensor.as_strided(&[6], &[-1], 5).unwrap();
    assert_eq!(
        (backwards.host_ptr(), backwards.to_vec::<i64>().unwrap()),
        (Some(address + 40), vec![5, 4, 3, 2, 1, 0])
    );
    let owned = Tensor::from_vec(vec![1_u32, 2], &[2]).unwrap();
    let view = owned.slice(0, 1..2).unwrap();
    assert_eq!(owned.host_ptr().map(|address| address + 4), view.host_ptr());
}

#[test]
fn what_may_only_be_read_is_no_output() {
    let (x, y) = ([1.0_f32; 3], [7.0_f32; 3]);
    let input = lent(&x, &[1, 3], &[3, 1]).unwrap();
    let output = lent(&y, &[1, 3], &[3, 1]).unwrap();
    assert!(!output.is_writable() && !output.slice(1, 0..2).unwrap().is_writable());
    assert!(Tensor::zeros(Elem::F32, &[1], &input.device()).unwrap().is_writable());
    let refused = cumsum::kernel().call_into(&[Some(&input)], &[&output]).unwrap_err();
    assert_eq!(refused.to_string(), "`y` is read-only; an output needs memory that may be written");
    assert_eq!(y, [7.0; 3]);
}

#[test]
fn two_tensors_over_one_memory_overlap() {
    let mut x = [1.0_f32; 6];
    let input = lent(&x, &[1, 3], &[3, 1]).unwrap();
    let meeting = borrowed(&mut x[2..], &[1, 3], &[3, 1]).unwrap();
    let apart = borrowed(&mut x[3..], &[1, 3], &[3, 1]).unwrap();
    let call = |output: &Tensor| cumsum::kernel().call_into(&[Some(&input)], &[output]).map(drop);
    let overlap = Error::Overlap { first: "y".into(), second: "x".into() };
    assert_eq!(call(&meeting), Err(overlap));
    assert_eq!(call(&apart), Ok(()));
    assert_eq!(x, [1.0, 1.0, 1.0, 1.0, 2.0, 3.0]);
}

#[test]
fn the_owner_goes_with_the_last_handle() {
    let (drops, x) = (Drops::default(), [true, false, true]);
    let owned = |bytes: usize, shape: &[usize]| {
        let address = x.as_ptr().expose_provenance();
        // SAFETY: the array outlives the tensors.
        unsafe { Tensor::from_host_ptr_read_only(address, bytes, Elem::Bool, (shape, &[1]), drops.clone()) }.unwrap()
    };
    for (bytes, shape) in [(3, [3]), (0, [0])] {
        let before = drops.0.load(Ordering::Relaxed);
        let tensor = owned(bytes, &shape);
        let view = tensor.slice(0, 0..shape[0]).unwrap();
        assert_eq!(view.to_vec::<bool>().unwrap(), x[..shape[0]]);
        drop(tensor);
        assert_eq!(drops.0.load(Ordering::Relaxed), before);
        drop(view);
        assert_eq!(drops.0.load(Ordering::Relaxed), before + 1);
    }
}

#[test]
fn no_bytes_may_be_anywhere() {
    let at = |address: usize| {
        // SAFETY: nothing is there, and nothing is read.
        unsafe { Tensor::from_host_ptr(address, 0, Elem::F64, (&[2, 0], &[1, 1]), ()) }.unwrap()
    };
    for address in [0, 1, usize::MAX] {
        let input = at(address);
        let (outputs, _) = cumsum::kernel().call(&[Some(&input)]).unwrap();
        assert_eq!((outputs[0].shape(), outputs[0].to_vec::<f64>().unwrap()), (&[2, 0][..], vec![]));
    }
}

#[test]
fn what_is_no_tensor_is_refused() {
    let mut x = [0.0_f32; 6];
    let refused = borrowed(&mut x, &[2, 4], &[4, 1]).unwrap_err().to_string();
    assert_eq!(
        refused,
        "no such view of a tensor of shape [2, 4]: strides [4, 1] from element 0 reach elements 0 … 7 of 6"
    );
    assert!(matches!(borrowed(&mut x, &[2], &[-1]), Err(Error::View { .. })));
    let at = |offset: usize, elem: Elem| {
        // SAFETY: the bytes lie in the array.
        unsafe { Tensor::from_host_ptr(x.as_ptr().expose_provenance() + offset, 8, elem, (&[1], &[1]), ()) }
    };
    assert!(at(4, Elem::F32).is_ok());
    assert!(matches!(at(2, Elem::F32), Err(Error::Misaligned { elem: Elem::F32, align: 4, .. })));
    assert!(matches!(at(0, Elem::Call), Err(Error::WrongElem { found: Elem::Call, .. })));
}
