//! Tensors on the CPU: construction, views, every element type.

use half::{bf16, f16};
use oplus::{Device, Elem, Element, Error, Tensor};

fn round_trip<T: Element + PartialEq + std::fmt::Debug>(elements: &[T], elem: Elem) {
    let tensor = Tensor::from_slice(elements, &[elements.len()]).unwrap();
    assert_eq!((tensor.elem(), tensor.len(), tensor.device()), (elem, elements.len(), Device::Cpu));
    assert_eq!(tensor.to_vec::<T>().unwrap(), elements);
    let last = tensor.slice(0, elements.len() - 1..elements.len()).unwrap();
    assert_eq!(last.to_vec::<T>().unwrap(), elements[elements.len() - 1..]);
    let value = elements[0];
    assert_eq!(Tensor::full(value, &[2, 3], &Device::Cpu).unwrap().to_vec::<T>().unwrap(), [value; 6]);
    assert_eq!(Tensor::zeros(elem, &[5], &Device::Cpu).unwrap().to_vec::<T>().unwrap().len(), 5);
}

#[test]
fn every_element_type_comes_back_as_it_went_in() {
    round_trip(&[1.5_f64, f64::NEG_INFINITY, -0.0], Elem::F64);
    round_trip(&[1.5_f32, f32::MIN_POSITIVE, 3.0], Elem::F32);
    round_trip(&[bf16::ONE, bf16::EPSILON, bf16::MAX], Elem::Bf16);
    round_trip(&[f16::ONE, f16::EPSILON, f16::MAX], Elem::F16);
    round_trip(&[1_i32, i32::MIN, i32::MAX], Elem::I32);
    round_trip(&[1_i64, i64::MIN, i64::MAX], Elem::I64);
    round_trip(&[1_u32, 0, u32::MAX], Elem::U32);
    round_trip(&[1_u64, 0, u64::MAX], Elem::U64);
    round_trip(&[true, false, true], Elem::Bool);
}

#[test]
fn the_number_of_elements_must_fit_the_shape() {
    let error = Tensor::from_slice(&[1.0_f32; 5], &[2, 3]).unwrap_err();
    assert_eq!(error.to_string(), "shape [2, 3] holds 6 elements, 5 were given");
    assert_eq!(Tensor::from_slice(&[1.0_f32], &[]).unwrap().shape(), [0_usize; 0]);
    assert!(Tensor::from_slice::<f32>(&[], &[3, 0]).unwrap().is_empty());
}

#[test]
fn a_shape_too_large_for_memory_is_an_error() {
    let zeros = |shape: &[usize]| Tensor::zeros(Elem::F64, shape, &Device::Cpu).unwrap_err();
    assert!(matches!(zeros(&[1 << 50]), Error::OutOfMemory { bytes, .. } if bytes == 1 << 53));
    assert!(matches!(zeros(&[1 << 40, 1 << 40]), Error::TooLarge { .. }));
    let full = Tensor::full(1.0_f64, &[1 << 50], &Device::Cpu).unwrap_err();
    assert_eq!(full.to_string(), "out of memory: 9007199254740992 bytes could not be allocated on cpu");
}

#[test]
fn the_element_type_of_the_call_cannot_be_stored() {
    let error = Tensor::zeros(Elem::Call, &[1], &Device::Cpu).unwrap_err();
    assert_eq!(
        error,
        Error::WrongElem { tensor: "tensor".into(), expected: "a storable type".into(), found: Elem::Call }
    );
}

#[test]
fn views_share_elements_and_say_what_they_cannot_show() {
    let x = Tensor::from_vec((0..24).collect::<Vec<i32>>(), &[2, 3, 4]).unwrap();
    let view = x.slice(1, 1..2).unwrap().permute(&[2, 0, 1]).unwrap();
    assert_eq!(view.to_vec::<i32>().unwrap(), [4, 16, 5, 17, 6, 18, 7, 19]);
    assert_eq!(x.reshape(&[4, 6]).unwrap().slice(0, 3..4).unwrap().to_vec::<i32>().unwrap(), [18, 19, 20, 21, 22, 23]);
    let error = x.as_strided(&[3], &[12], 0).unwrap_err().to_string();
    assert_eq!(error, "no such view of a tensor of shape [3]: strides [12] from element 0 reach elements 0 … 24 of 24");
    assert_eq!(x.as_strided(&[3], &[0], 5).unwrap().to_vec::<i32>().unwrap(), [5, 5, 5]);
    assert_eq!(x.as_strided(&[2, 0], &[1, 1], 99).unwrap().to_vec::<i32>().unwrap(), [0; 0]);
}

#[test]
fn a_copy_to_the_cpu_is_the_tensor_itself_there() {
    let x = Tensor::from_vec(vec![1_u32, 2, 3], &[3]).unwrap();
    let y = x.to_cpu().unwrap();
    assert_eq!(y.to_vec::<u32>().unwrap(), [1, 2, 3]);
    assert_eq!(x.device_ptr(), None);
}

#[test]
fn a_machine_without_a_gpu_gets_the_cpu_and_an_error_for_the_asking() {
    if Device::cuda_count() == 0 {
        assert_eq!(Device::default(), Device::Cpu);
        assert!(matches!(Device::cuda(0), Err(Error::NoCuda { .. })));
    } else {
        assert!(matches!(Device::default(), Device::Cuda(_)));
        assert!(matches!(Device::cuda(1 << 20), Err(Error::NoCuda { .. })));
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_ndarray_keep_their_strides() {
    let array = ndarray::Array2::from_shape_fn((3, 4), |(i, j)| (10 * i + j) as f32);
    let view = array.clone().reversed_axes();
    let tensor = Tensor::from_ndarray(view.clone()).unwrap();
    assert_eq!((tensor.shape(), tensor.strides()), (&[4, 3][..], &[1, 4][..]));
    assert_eq!(tensor.to_ndarray::<f32>().unwrap(), view.into_dyn());
    let mut flipped = array;
    flipped.invert_axis(ndarray::Axis(1));
    let tensor = Tensor::from_ndarray(flipped.clone()).unwrap();
    assert_eq!(tensor.strides(), [4, -1]);
    assert_eq!(tensor.to_ndarray::<f32>().unwrap(), flipped.into_dyn());
}
