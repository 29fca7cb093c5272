//! Calls whose sizes, products of sizes or bytes leave what 64 bits count. Views that repeat one element take no memory, so that
//! any of them can be had.

use oplus::{Error, Kernel, Shapes, Target, Tensor};

use super::common::AFFINE;

/// x[K, M]·y[M, N] as a sum over M.
static PRODUCT: Kernel = Kernel::new(
    "product",
    "program product {
        axes K, M, N;
        param x: f32[K, M];
        param y: f32[M, N];
        operator Sum(s: f32) {
            identity (0.0);
            %0: f32 = input l.s;
            %1: f32 = input r.s;
            %2: f32 = %0 + %1;
            combine (%2);
        }
        %0: f32[K, M] = param x;
        %1: f32[M, N] = param y;
        %2: f32[K, M, N] = %0 * %1;
        %3: tuple[K, N] = reduce(M, Sum, (%2));
        %4: f32[K, N] = %3.s;
        output z: f32[K, N] = %4;
    }",
);

/// One element under every index.
fn repeated(shape: &[usize]) -> Result<Tensor, Error> {
    Tensor::from_slice(&[2.0_f32], &[1])?.as_strided(shape, &vec![0; shape.len()], 0)
}

#[test]
fn views_that_no_index_counts_are_refused_with_their_shape() {
    for shape in [&[1 << 40, 1 << 40][..], &[1 << 62], &[usize::MAX, 1]] {
        let refused = repeated(shape).unwrap_err();
        assert_eq!(refused, Error::TooLarge { shape: shape.to_vec() });
    }
}

#[test]
fn a_part_of_a_view_of_many_elements_is_a_tensor_as_any_other() {
    for len in [(1 << 31) - 1, (1 << 31) + 7, 1 << 32, 1 << 57] {
        let view = repeated(&[3, len]).and_then(|view| view.slice(1, len - 2..len)).unwrap();
        assert_eq!(view.to_vec::<f32>().unwrap(), [2.0; 6]);
        let (outputs, _) = AFFINE.call(&[Some(&view), Some(&view), None, None]).unwrap();
        assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [2.0, 6.0, 2.0, 6.0, 2.0, 6.0]);
    }
}

#[test]
fn copies_and_outputs_that_no_memory_holds_are_errors_that_name_their_bytes() {
    let view = repeated(&[1, 1 << 46]).unwrap();
    let Err(Error::OutOfMemory { bytes, .. }) = view.to_vec::<f32>() else { panic!("there is memory") };
    assert_eq!(bytes, 1 << 48);
    match AFFINE.call(&[Some(&view), Some(&view), None, None]) {
        Err(Error::OutOfMemory { bytes, .. }) => assert_eq!(bytes, 1 << 48),
        other => panic!("{other:?}"),
    }
}

/// Both tensors can be counted, and so can the output; what is summed cannot.
#[test]
fn values_of_the_axes_of_several_tensors_are_counted() {
    let (x, y) = (repeated(&[1 << 20, 1 << 30]).unwrap(), repeated(&[1 << 30, 1 << 20]).unwrap());
    let error = PRODUCT.call(&[Some(&x), Some(&y)]).map(|_| ()).unwrap_err();
    let axes = "K=1048576, M=1073741824, N=1048576".to_owned();
    assert_eq!(error, Error::TooManyElements { kernel: "product".into(), axes });
    let (x, y) = (repeated(&[3, 1 << 10]).unwrap(), repeated(&[1 << 10, 2]).unwrap());
    let (outputs, _) = PRODUCT.call(&[Some(&x), Some(&y)]).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [4096.0; 6]);
}

#[test]
fn explaining_any_sizes_is_a_plan_or_an_error_in_words() {
    let mut planned = 0;
    for len in [(1 << 31) - 1, 1 << 31, (1 << 31) + 4096, 1 << 32, 1 << 40, 1 << 59, 1 << 62, usize::MAX] {
        for rows in [1, 1 << 20, len] {
            let shapes = Shapes::new().axis("B", rows).axis("L", len).target(Target::H200);
            match AFFINE.explain(&shapes) {
                Ok(_) => planned += 1,
                Err(Error::TooLarge { shape }) => assert!(shape.contains(&len), "{shape:?}"),
                Err(Error::Plan { reason, .. }) => assert!(reason.contains(&len.to_string()), "{reason}"),
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(planned > 4, "{planned}");
}
