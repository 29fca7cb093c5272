//! Calls whose tensors the caller keeps.

use oplus::kernels::{affine, cumprod};
use oplus::{Call, Device, Elem, Error, Tensor};

use crate::common::ramp;

#[test]
fn a_call_from_its_parts_has_the_gradients_of_the_call() {
    let kernel = affine::kernel();
    let (a, b) = (ramp(&[2, 7]), ramp(&[2, 7]));
    let inputs = [Some(&a), Some(&b), None];
    let (outputs, call) = kernel.call(&inputs).unwrap();
    let given: Vec<Option<&Tensor>> = outputs.iter().map(Some).collect();
    let again = Call::from_parts(kernel, &inputs, &given, None).unwrap();
    assert!(call.residual().is_none() && again.residual().is_none());
    let gradient = |call: &Call| {
        let gradients = kernel.backward(call, &[Some(&outputs[0]), None]).unwrap();
        gradients.into_iter().map(|g| g.map(|g| g.to_vec::<f32>().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(gradient(&call), gradient(&again));
}

#[test]
fn outputs_that_the_gradient_does_not_read_may_go() {
    let kernel = affine::kernel();
    let read = |name: &str| kernel.gradient_program().unwrap().params.iter().any(|param| param.name == name);
    assert!(read("h") && !read("h_last"));
    let (a, b) = (ramp(&[2, 7]), ramp(&[2, 7]));
    let inputs = [Some(&a), Some(&b), None];
    let (outputs, call) = kernel.call(&inputs).unwrap();
    let gradient = |call: &Call| kernel.backward(call, &[Some(&outputs[0]), None]);
    let some = Call::from_parts(kernel, &inputs, &[Some(&outputs[0]), None], None).unwrap();
    let elements = |gradients: Vec<Option<Tensor>>| gradients[0].as_ref().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(elements(gradient(&some).unwrap()), elements(gradient(&call).unwrap()));
    let none = Call::from_parts(kernel, &inputs, &[None, None], None).unwrap();
    assert!(matches!(gradient(&none), Err(Error::MissingTensor { tensor }) if tensor == "h"));
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let kernel = cumprod::kernel();
    let (x, wrong) = (ramp(&[2, 7]), ramp(&[2, 6]));
    let made = |inputs: &[Option<&Tensor>], outputs: &[Option<&Tensor>]| {
        Call::from_parts(kernel, inputs, outputs, None).map(drop).unwrap_err()
    };
    assert!(matches!(made(&[Some(&x)], &[Some(&wrong)]), Error::ShapeMismatch { axis, .. } if axis == "T"));
    assert!(matches!(made(&[Some(&x)], &[]), Error::Count { what: "outputs", expected: 1, found: 0 }));
    assert!(matches!(made(&[Some(&x), None], &[None]), Error::Count { what: "inputs", expected: 1, found: 2 }));
    assert!(matches!(made(&[None], &[None]), Error::MissingTensor { tensor } if tensor == "x"));
}

#[test]
fn on_the_cpu_nothing_is_saved() {
    let (kernel, x) = (cumprod::kernel(), ramp(&[2, 7]));
    let zeros = |shape: &[usize]| Tensor::zeros(Elem::F32, shape, &Device::Cpu).unwrap();
    let (y, states) = (zeros(&[2, 7]), zeros(&[5]));
    assert_eq!(kernel.residual_shape(&[Some(&x)], &[&y]), Ok(None));
    let call = kernel.call_saving_into(&[Some(&x)], &[&y], &states).unwrap();
    assert!(call.residual().is_none());
    assert_eq!(states.to_vec::<f32>().unwrap(), [0.0; 5]);
    assert_eq!(y.to_vec::<f32>().unwrap(), kernel.call(&[Some(&x)]).unwrap().0[0].to_vec::<f32>().unwrap());
    let overlap = kernel.call_saving_into(&[Some(&x)], &[&y], &y.slice(0, 0..1).unwrap()).map(drop);
    assert_eq!(overlap, Err(Error::Overlap { first: "residual".into(), second: "y".into() }));
}

#[test]
fn outputs_have_shapes_and_types_before_a_call() {
    let a = Tensor::zeros(Elem::Bf16, &[2, 7], &Device::Cpu).unwrap();
    let kernel = &crate::common::AFFINE;
    let inputs = [Some(&a), Some(&a), None, None];
    let shapes = kernel.output_shapes(&inputs).unwrap();
    assert_eq!(shapes, [(Elem::Bf16, vec![2, 7]), (Elem::F32, vec![2]), (Elem::I32, vec![2])]);
    let outputs = kernel.call(&inputs).unwrap().0;
    let found: Vec<_> = outputs.iter().map(|output| (output.elem(), output.shape().to_vec())).collect();
    assert_eq!(found, shapes);
    assert!(matches!(kernel.output_shapes(&[Some(&a)]), Err(Error::Count { what: "inputs", expected: 4, found: 1 })));
}
