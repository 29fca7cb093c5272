//! Views of tensors: beside `ndarray`, on awkward shapes, and how they print.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn, Slice};
use oplus::{Device, Element, Error, Tensor};
use proptest::prelude::*;
use proptest::sample::Index;

/// Sizes of axes of a tensor with the elements 0, 1, 2, ….
fn counting(shape: &[usize]) -> (Tensor, ArrayD<i32>) {
    let elements: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
    (Tensor::from_slice(&elements, shape).unwrap(), ArrayD::from_shape_vec(IxDyn(shape), elements).unwrap())
}

fn elements(tensor: &Tensor) -> Vec<i32> {
    tensor.to_vec().unwrap()
}

/// The strides under which another shape shows elements at these places, in their order, if there are such: the places are
/// then a sum of multiples of the indices.
fn strides_of(places: &[i32], shape: &[usize]) -> Option<Vec<i64>> {
    let counts: Vec<usize> = (0..shape.len()).map(|k| shape[k + 1..].iter().product()).collect();
    let first = places[0];
    let stride = |k: usize| if shape[k] > 1 { i64::from(places[counts[k]] - first) } else { 0 };
    let strides: Vec<i64> = (0..shape.len()).map(stride).collect();
    let place = |at: usize| (0..shape.len()).map(|k| (at / counts[k] % shape[k]) as i64 * strides[k]).sum::<i64>();
    places.iter().enumerate().all(|(at, found)| place(at) == i64::from(found - first)).then_some(strides)
}

/// One step from view to view.
#[derive(Clone, Debug)]
enum Step {
    Slice(Index, Index, Index),
    Select(Index, Index),
    Squeeze(Index),
    Unsqueeze(Index),
    Swap(Index, Index),
    Flip(Index),
    Contiguous,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        (index(), index(), index()).prop_map(|(axis, a, b)| Step::Slice(axis, a, b)),
        (index(), index()).prop_map(|(axis, at)| Step::Select(axis, at)),
        index().prop_map(Step::Squeeze),
        index().prop_map(Step::Unsqueeze),
        (index(), index()).prop_map(|(a, b)| Step::Swap(a, b)),
        index().prop_map(Step::Flip),
        Just(Step::Contiguous),
    ]
}

/// Takes one step with both; nothing where there is no axis, or no index, for it.
fn take<'a>(step: &Step, (tensor, array): (Tensor, ArrayViewD<'a, i32>)) -> (Tensor, ArrayViewD<'a, i32>) {
    let rank = tensor.shape().len();
    let pick = |axis: &Index| (rank > 0).then(|| axis.index(rank));
    let size = |axis: usize| tensor.shape()[axis];
    let (new, array) = match step {
        Step::Slice(axis, a, b) => {
            let Some(axis) = pick(axis) else { return (tensor, array) };
            let (a, b) = (a.index(size(axis) + 1), b.index(size(axis) + 1));
            let (from, to) = (a.min(b), a.max(b));
            let mut array = array;
            array.slice_axis_inplace(Axis(axis), Slice::from(from..to));
            (tensor.slice(axis, from..to), array)
        }
        Step::Select(axis, at) => match pick(axis).filter(|axis| size(*axis) > 0) {
            None => return (tensor, array),
            Some(axis) => {
                let at = at.index(size(axis));
                (tensor.select(axis, at), array.index_axis_move(Axis(axis), at))
            }
        },
        Step::Squeeze(axis) => match pick(axis) {
            None => return (tensor, array),
            Some(axis) if size(axis) != 1 => {
                assert!(matches!(tensor.squeeze(axis), Err(Error::View { .. })));
                return (tensor, array);
            }
            Some(axis) => (tensor.squeeze(axis), array.index_axis_move(Axis(axis), 0)),
        },
        Step::Unsqueeze(axis) => {
            let axis = axis.index(rank + 1);
            (tensor.unsqueeze(axis), array.insert_axis(Axis(axis)))
        }
        Step::Swap(a, b) => {
            let (Some(a), Some(b)) = (pick(a), pick(b)) else { return (tensor, array) };
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(a, b);
            (tensor.permute(&order), array.permuted_axes(IxDyn(&order)))
        }
        Step::Flip(axis) => {
            let Some(axis) = pick(axis).filter(|_| !tensor.is_empty()) else { return (tensor, array) };
            let mut array = array;
            array.invert_axis(Axis(axis));
            (flipped(&tensor, axis, array.first().copied().unwrap_or(0)), array)
        }
        Step::Contiguous => {
            let copy = tensor.contiguous().unwrap();
            assert!(copy.is_contiguous() && copy.shape() == tensor.shape());
            assert_eq!(elements(&copy), elements(&tensor));
            return (tensor, array);
        }
    };
    (new.unwrap(), array)
}

/// The axis from its last index to its first; `first` is where the element of index 0, 0, … of the result lies.
fn flipped(tensor: &Tensor, axis: usize, first: i32) -> Result<Tensor, Error> {
    let mut strides = tensor.strides().to_vec();
    strides[axis] = -strides[axis];
    tensor.as_strided(tensor.shape(), &strides, first as usize)
}

/// Repeats along a new axis of stride 0 at the front.
fn repeated(tensor: &Tensor, size: usize) -> Tensor {
    let shape = [&[size], tensor.shape()].concat();
    let strides = [&[0], tensor.strides()].concat();
    let first = if tensor.is_empty() { 0 } else { elements(tensor)[0] };
    tensor.as_strided(&shape, &strides, first as usize).unwrap()
}

/// A random shape of `len` elements.
fn other_shape(len: usize, cuts: &[Index]) -> Vec<usize> {
    let mut shape = vec![];
    let mut left = len.max(1);
    for cut in cuts {
        let divisors: Vec<usize> = (1..=left).filter(|d| left.is_multiple_of(*d)).collect();
        let size = divisors[cut.index(divisors.len())];
        shape.push(size);
        left /= size;
    }
    shape.push(if len == 0 { 0 } else { left });
    shape
}

proptest! {
    #[test]
    fn views_are_those_of_ndarray(
        shape in prop::collection::vec(0_usize..5, 0..4),
        steps in prop::collection::vec(step(), 0..8),
        repeats in prop_oneof![Just(1_usize), 0_usize..4],
        cuts in prop::collection::vec(any::<Index>(), 0..4),
    ) {
        let (mut tensor, array) = counting(&shape);
        let mut array = array.view();
        for step in &steps {
            (tensor, array) = take(step, (tensor, array));
            prop_assert_eq!(tensor.shape(), array.shape());
            prop_assert_eq!(elements(&tensor), array.iter().copied().collect::<Vec<_>>());
        }
        let tensor = if repeats == 1 { tensor } else { repeated(&tensor, repeats) };
        let places = elements(&tensor);
        let shape = other_shape(places.len(), &cuts);
        let expected = if places.is_empty() { Some(vec![]) } else { strides_of(&places, &shape) };
        match tensor.reshape(&shape) {
            Ok(view) => {
                prop_assert!(expected.is_some(), "{:?} has no shape {:?}", tensor, shape);
                prop_assert_eq!(view.shape(), &shape[..]);
                prop_assert_eq!(elements(&view), places);
            }
            Err(error) => {
                prop_assert!(expected.is_none(), "{:?} has shape {:?}: {}", tensor, shape, error);
                prop_assert!(error.to_string().contains("`contiguous` makes a copy"), "{}", error);
                prop_assert_eq!(elements(&tensor.contiguous().unwrap().reshape(&shape).unwrap()), places);
            }
        }
    }

    #[test]
    fn tensors_print_as_arrays_do(shape in prop::collection::vec(prop_oneof![0_usize..4, 0_usize..14], 0..5)) {
        prop_assume!(shape.iter().product::<usize>() < 20_000);
        let (tensor, array) = counting(&shape);
        let expected = format!("{array:?}");
        let (values, _) = expected.split_once(", shape=").unwrap();
        prop_assert_eq!(format!("{tensor:?}"), format!("{values}, i32{shape:?} on cpu"));
    }
}

#[test]
fn a_column_has_another_shape() {
    let (x, _) = counting(&[4, 6]);
    let column = x.slice(1, 1..2).unwrap();
    assert_eq!(elements(&column.reshape(&[4]).unwrap()), [1, 7, 13, 19]);
    assert_eq!(elements(&column.reshape(&[2, 1, 2]).unwrap()), [1, 7, 13, 19]);
    assert_eq!(elements(&x.slice(1, 0..3).unwrap().reshape(&[2, 2, 3]).unwrap())[..4], [0, 1, 2, 6]);
    let error = x.slice(1, 0..3).unwrap().reshape(&[12]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no such view of a tensor of shape [4, 3]: by its strides [6, 1] it is none of shape [12]; `contiguous` makes a copy"
    );
}

#[test]
fn sizes_0_and_1_and_strides_0_and_below_have_other_shapes() {
    let (x, _) = counting(&[2, 3]);
    assert_eq!(x.slice(1, 3..3).unwrap().reshape(&[0, 7, 5]).unwrap().shape(), [0, 7, 5]);
    assert_eq!(elements(&x.select(0, 1).unwrap().select(0, 2).unwrap().reshape(&[1, 1]).unwrap()), [5]);
    let same = x.as_strided(&[2, 3], &[0, 0], 4).unwrap();
    assert_eq!(
        (elements(&same.reshape(&[6]).unwrap()), same.contiguous().unwrap().strides()),
        (vec![4; 6], &[3, 1][..])
    );
    let back = x.as_strided(&[6], &[-1], 5).unwrap();
    assert_eq!(elements(&back.reshape(&[3, 2]).unwrap()), [5, 4, 3, 2, 1, 0]);
    assert_eq!(back.reshape(&[3, 2]).unwrap().strides(), [-2, -1]);
}

#[test]
fn what_a_view_cannot_be_is_said() {
    let (x, _) = counting(&[2, 3]);
    let message = |view: Result<Tensor, Error>| view.unwrap_err().to_string();
    let start = "no such view of a tensor of shape [2, 3]: ";
    assert_eq!(message(x.select(2, 0)), format!("{start}it has 2 axes, no axis 2"));
    assert_eq!(message(x.select(1, 3)), format!("{start}no index 3 along axis 1, whose size is 3"));
    assert_eq!(message(x.squeeze(0)), format!("{start}axis 0 has size 2; only an axis of size 1 can be left out"));
    assert_eq!(message(x.unsqueeze(3)), format!("{start}a new axis can be one of 0 … 2, not 3"));
    assert_eq!(message(x.reshape(&[5])), "shape [5] holds 5 elements, 6 were given");
    assert!(matches!(x.reshape(&[1 << 40, 1 << 40]), Err(Error::TooLarge { .. })));
}

#[test]
fn contiguous_copies_only_where_it_must() {
    let (x, _) = counting(&[2, 3]);
    let row = x.slice(0, 1..2).unwrap().contiguous().unwrap();
    assert_eq!(elements(&row.as_strided(&[6], &[1], 0).unwrap()), [0, 1, 2, 3, 4, 5], "it shares the memory");
    let turned = x.permute(&[1, 0]).unwrap().contiguous().unwrap();
    assert_eq!((turned.strides(), elements(&turned)), (&[2, 1][..], vec![0, 3, 1, 4, 2, 5]));
}

#[test]
fn a_tensor_prints_its_values_and_what_it_is() {
    let x = Tensor::from_slice(&[1.0_f32, -0.5, f32::NAN, f32::INFINITY], &[2, 2]).unwrap();
    assert_eq!(format!("{x:?}"), "[[1.0, -0.5],\n [NaN, inf]], f32[2, 2] on cpu");
    assert_eq!(format!("{x:.2?}"), "[[1.00, -0.50],\n [NaN, inf]], f32[2, 2] on cpu");
    let turned = x.permute(&[1, 0]).unwrap();
    assert_eq!(format!("{turned:?}"), "[[1.0, NaN],\n [-0.5, inf]], f32[2, 2] with strides [1, 2] on cpu");
    let flags = Tensor::from_slice(&[true, false], &[2]).unwrap();
    assert_eq!(format!("{flags:?}"), "[true, false], bool[2] on cpu");
    let half = Tensor::from_slice(&[half::bf16::ONE], &[]).unwrap();
    assert_eq!(format!("{half:?}"), "1.0, bf16[] on cpu");
}

#[test]
fn of_a_large_tensor_the_edges_are_printed() {
    let same = Tensor::from_slice(&[7_i64], &[1]).unwrap();
    let large = same.as_strided(&[1 << 20, 1 << 20], &[0, 0], 0).unwrap();
    let text = format!("{large:?}");
    let row = "[7, 7, 7, 7, 7, ..., 7, 7, 7, 7, 7]";
    assert_eq!(text.matches(row).count(), 10);
    assert!(text.ends_with("i64[1048576, 1048576] with strides [0, 0] on cpu"));
    let many_axes = same.as_strided(&[2; 30], &[0; 30], 0).unwrap();
    assert!(format!("{many_axes:?}").starts_with("i64[2, 2, "));
}

/// On a machine without a GPU there is nothing to test.
#[test]
fn on_a_gpu_views_print_and_are_copied_but_not_while_it_captures() {
    if Device::cuda_count() == 0 {
        return eprintln!("no GPU");
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let device = Device::from_stream(stream.clone()).unwrap();
    let (x, _) = counting(&[4, 300]);
    let there = x.to_device(&device).unwrap();
    let column = there.slice(1, 1..2).unwrap();
    assert_eq!(elements(&column.reshape(&[4]).unwrap()), [1, 301, 601, 901]);
    let on_cpu = |text: String| text.replace(&device.to_string(), "cpu");
    for (ours, expected) in [(&there, &x), (&column, &x.slice(1, 1..2).unwrap())] {
        assert_eq!(on_cpu(format!("{ours:?}")), format!("{expected:?}"));
    }
    let copy = there.permute(&[1, 0]).unwrap().contiguous().unwrap();
    assert!(copy.is_contiguous() && copy.device() == device);
    assert_eq!(elements(&copy), elements(&x.permute(&[1, 0]).unwrap()));
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let (text, captured) = (format!("{there:?}"), column.contiguous().unwrap());
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().expect("the copy is in the graph");
    assert_eq!(on_cpu(text), "i32[4, 300] on cpu");
    graph.launch().unwrap();
    assert_eq!(elements(&captured), [1, 301, 601, 901]);
}

/// Every element type, under strides of every kind, in more axes than the kernel has.
#[test]
fn on_a_gpu_copies_have_the_elements_of_the_cpu() {
    if Device::cuda_count() == 0 {
        return eprintln!("no GPU");
    }
    let device = Device::cuda(0).unwrap();
    fn check<T: Element + PartialEq + std::fmt::Debug>(device: &Device, value: impl Fn(usize) -> T) {
        let values: Vec<T> = (0..3 * 5 * 2 * 7 * 4).map(value).collect();
        let x = Tensor::from_slice(&values, &[3, 5, 2, 7, 4]).unwrap();
        let there = x.to_device(device).unwrap();
        for order in [[4, 3, 2, 1, 0], [0, 2, 1, 4, 3], [3, 0, 4, 1, 2]] {
            let turned = |x: &Tensor| x.permute(&order).unwrap().slice(1, 1..2).unwrap().contiguous().unwrap();
            assert_eq!(turned(&there).to_vec::<T>().unwrap(), turned(&x).to_vec::<T>().unwrap(), "{order:?}");
        }
        let strided = |x: &Tensor| x.as_strided(&[9, 4, 6], &[0, -2, 30], 200).unwrap().contiguous().unwrap();
        assert_eq!(strided(&there).to_vec::<T>().unwrap(), strided(&x).to_vec::<T>().unwrap());
    }
    check(&device, |k| k as f64);
    check(&device, |k| f32::from_bits(0x7f80_0000 + k as u32).to_bits());
    check(&device, |k| half::bf16::from_bits(k as u16));
    check(&device, |k| half::f16::from_bits(k as u16));
    check(&device, |k| -(k as i32));
    check(&device, |k| (k as i64) << 33 | 1);
    check(&device, |k| k % 3 == 0);
}
