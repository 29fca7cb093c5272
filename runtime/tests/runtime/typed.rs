//! Gradients as kernels with named tensors: against finite differences, and against calls and their `backward`.

use oplus::kernels::{Affine, AffineCotangents, AffineGradients, AffineGradientsCotangents, affine};
use oplus::typed::{Fields, Gradient, Gradients, WithCotangents};
use oplus::{Error, Tensor, scan};

scan! {
    /// Attention to the columns before a row, and a plain factor that some calls leave out.
    fn attend(q: [M, K], k: [N, K], v: [N, D], scale: [D] = 1) -> (o: [M, D], largest: [M]) {
        let all = reduce(N, Softmax(sum(K, q * k), 1, v));
        o = all.o / all.d * scale;
        largest = all.m;
    }

    /// A weight in at least `f32`, and a count, which has no gradient.
    fn weighed(x: [T], w: call | wide[T], n: i32) -> (y: [T], m: i32) {
        y = scan(T, Affine(w, x * (n as call))).b;
        m = n + 1;
    }
}

/// Numbers of both signs, near 0.5 in size.
fn tensor(shape: &[usize], seed: usize) -> Tensor {
    let of = |i: usize| ((i * 37 + seed * 101) % 17) as f64 / 17.0 - 0.45;
    Tensor::from_vec((0..shape.iter().product()).map(of).collect::<Vec<f64>>(), shape).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

/// The tensors of a struct.
fn fields(of: &impl Fields) -> Vec<Option<Tensor>> {
    let mut tensors = vec![];
    of.append_to(&mut tensors);
    tensors.into_iter().map(|tensor| tensor.cloned()).collect()
}

/// Inputs and cotangents made of tensors, each of which is moved; and the gradients that a call of these gives.
fn check<I, C, G>(
    kernel: Gradient<I, C, G>,
    tensors: &[Tensor],
    make: impl Fn(&[Tensor]) -> (I, C),
    bars: impl Fn() -> G::Cotangents,
) where
    I: Fields,
    C: Gradients,
    G: Gradients,
{
    let value = |tensors: &[Tensor]| -> f64 {
        let (inputs, cotangents) = make(tensors);
        let found = fields(&kernel.call(inputs, cotangents).unwrap().gradients);
        let products = found.iter().zip(fields(&bars())).filter_map(|(x, bar)| Some((x.as_ref()?, bar?)));
        products.map(|(x, bar)| floats(x).iter().zip(floats(&bar)).map(|(x, y)| x * y).sum::<f64>()).sum()
    };
    let (inputs, cotangents) = make(tensors);
    let second = kernel.call(inputs, cotangents).unwrap().backward(bars()).unwrap();
    let found: Vec<Tensor> = fields(&second).into_iter().flatten().collect();
    assert_eq!(found.len(), tensors.len());
    for (k, found) in found.iter().enumerate() {
        assert_eq!(found.shape(), tensors[k].shape());
        for (i, found) in floats(found).into_iter().enumerate() {
            let at = |by: f64| {
                let mut moved = tensors.to_vec();
                let mut data = floats(&tensors[k]);
                data[i] += by;
                moved[k] = Tensor::from_vec(data, tensors[k].shape()).unwrap();
                value(&moved)
            };
            let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
            let close = (found - expected).abs() < 1e-7 * (1.0 + expected.abs());
            assert!(close, "{kernel:?}: tensor {k} at {i}: {found}, {expected}");
        }
    }
    // As a kernel it gives the same bits.
    let (inputs, cotangents) = make(tensors);
    let again = kernel.gradient().call(WithCotangents { inputs, cotangents }, bars()).unwrap().gradients;
    let bits = |of: &WithCotangents<G, C>| fields(of).iter().flatten().map(floats).collect::<Vec<_>>();
    assert_eq!(bits(&again), bits(&second));
}

/// Inputs of the recurrence, of which the first state may be left out, and a cotangent of its states alone.
fn affine_of(tensors: &[Tensor]) -> (Affine, AffineCotangents) {
    let (h0, h) = if let [_, _, h0, h] = tensors { (Some(h0.clone()), h) } else { (None, &tensors[2]) };
    let inputs = Affine { a: tensors[0].clone(), b: tensors[1].clone(), h0 };
    (inputs, AffineCotangents { h: Some(h.clone()), h_last: None })
}

/// The tensors with a first state, which comes third.
fn with_h0(tensors: &[Tensor], shape: &[usize]) -> Vec<Tensor> {
    let [a, b, rest @ ..] = tensors else { panic!("there are two inputs") };
    [a.clone(), b.clone(), tensor(shape, 4)].into_iter().chain(rest.iter().cloned()).collect()
}

fn affine_bars(a: &[usize]) -> AffineGradientsCotangents {
    AffineGradientsCotangents { a: Some(tensor(a, 8)), b: Some(tensor(a, 9)), h0: None }
}

#[test]
fn second_derivatives_of_a_recurrence() {
    let all = [1, 2, 3].map(|k| tensor(&[2, 5], k));
    check(affine::gradient(), &all, affine_of, || affine_bars(&[2, 5]));
    check(affine::gradient(), &with_h0(&all, &[2]), affine_of, || affine_bars(&[2, 5]));
}

#[test]
fn third_and_fourth_derivatives_of_a_recurrence() {
    let tensors = with_h0(&[1, 2, 3, 5].map(|k| tensor(&[1, 3], k)), &[1]);
    let second = |tensors: &[Tensor]| {
        let (inputs, cotangents) = affine_of(&tensors[..4]);
        (
            WithCotangents { inputs, cotangents },
            AffineGradientsCotangents { b: None, h0: None, a: Some(tensors[4].clone()) },
        )
    };
    let bars = || WithCotangents {
        inputs: affine_bars(&[1, 3]),
        cotangents: AffineCotangents { h: Some(tensor(&[1, 3], 6)), h_last: None },
    };
    check(affine::gradient().gradient(), &tensors, second, bars);
    let third = |tensors: &[Tensor]| {
        let (inputs, cotangents) = second(tensors);
        let inner = AffineGradientsCotangents { a: Some(tensors[5].clone()), ..Default::default() };
        (WithCotangents { inputs, cotangents }, WithCotangents { inputs: inner, cotangents: Default::default() })
    };
    let tensors: Vec<Tensor> = tensors.into_iter().chain([tensor(&[1, 3], 7)]).collect();
    // Of what the calls leave out there is no gradient.
    let of_a = || AffineGradientsCotangents { b: None, ..affine_bars(&[1, 3]) };
    let bars = || WithCotangents { inputs: bars(), cotangents: of_a() };
    check(affine::gradient().gradient().gradient(), &tensors, third, bars);
}

#[test]
fn second_derivatives_of_attention() {
    let shapes: [&[usize]; 5] = [&[2, 2], &[3, 2], &[3, 4], &[4], &[2, 4]];
    let tensors: Vec<Tensor> = shapes.iter().enumerate().map(|(k, shape)| tensor(shape, k)).collect();
    let make = |tensors: &[Tensor]| {
        let [q, k, v] = [0, 1, 2].map(|k| tensors[k].clone());
        let scale = (tensors.len() > 4).then(|| tensors[3].clone());
        (Attend { q, k, v, scale }, AttendCotangents { o: tensors.last().cloned(), largest: None })
    };
    let bars =
        || AttendGradientsCotangents { q: Some(tensor(&[2, 2], 6)), k: Some(tensor(&[3, 2], 7)), v: None, scale: None };
    check(attend::gradient(), &tensors, make, bars);
    check(attend::gradient(), &[0, 1, 2, 4].map(|k| tensors[k].clone()), make, bars);
}

#[test]
fn first_derivatives_have_the_bits_of_backward() {
    let tensors = [1, 2, 3].map(|k| tensor(&[2, 5], k));
    let (inputs, cotangents) = affine_of(&with_h0(&tensors, &[2]));
    let expected = affine(inputs.clone()).unwrap().backward(cotangents.clone()).unwrap();
    let found = affine::gradient().call(inputs, cotangents).unwrap().gradients;
    let bits = |of: &AffineGradients| fields(of).iter().flatten().map(floats).collect::<Vec<_>>();
    assert_eq!(bits(&found), bits(&expected));
    let (inputs, cotangents) = affine_of(&tensors);
    assert!(affine::gradient().call(inputs, cotangents).unwrap().gradients.h0.is_none());
}

#[test]
fn a_tensor_of_another_type_has_a_gradient_of_that_type() {
    let half = |x: &[f32]| Tensor::from_vec(x.iter().map(|x| half::bf16::from_f32(*x)).collect(), &[x.len()]).unwrap();
    let n = Tensor::from_slice(&[3_i32], &[]).unwrap();
    for w in [half(&[0.5, 0.5]), Tensor::from_slice(&[0.5_f32, 0.5], &[2]).unwrap()] {
        let (inputs, elem) = (Weighed { x: half(&[1.0, 2.0]), w: w.clone(), n: n.clone() }, w.elem());
        let out = weighed::gradient().call(inputs, WeighedCotangents { y: Some(half(&[0.0, 1.0])) }).unwrap();
        assert_eq!(out.gradients.w.elem(), elem);
        let bars = WeighedGradientsCotangents { w: Some(Tensor::full(1.0_f32, &[2], &w.device()).unwrap()), x: None };
        let bars = if elem == oplus::Elem::F32 {
            bars
        } else {
            WeighedGradientsCotangents { w: Some(half(&[1.0, 1.0])), x: None }
        };
        // w̄ at the second time is y[0]·ȳ[1], and y[0] = 3·x[0].
        let second = out.backward(bars).unwrap();
        assert_eq!(second.inputs.w.elem(), elem);
        assert_eq!(second.inputs.x.to_vec::<half::bf16>().unwrap(), [3.0_f32, 0.0].map(half::bf16::from_f32));
        assert_eq!(second.cotangents.y.unwrap().to_vec::<half::bf16>().unwrap().len(), 2);
    }
}

#[test]
fn errors_are_those_of_a_call_and_of_its_gradient() {
    let tensors = [tensor(&[2, 5], 1), tensor(&[2, 5], 2), tensor(&[2, 4], 3)];
    let (inputs, cotangents) = affine_of(&tensors);
    let plain = affine(inputs.clone()).unwrap().backward(cotangents.clone()).unwrap_err();
    let typed = affine::gradient().call(inputs, cotangents).unwrap_err();
    assert!(matches!(typed, Error::ShapeMismatch { .. }), "{typed}");
    assert_eq!(typed.to_string(), plain.to_string());

    let (mut inputs, cotangents) = affine_of(&[tensor(&[2, 5], 1), tensor(&[2, 5], 2), tensor(&[2, 5], 3)]);
    inputs.h0 = Some(tensor(&[3], 1));
    let plain = affine(inputs.clone()).unwrap_err();
    let typed = affine::gradient().call(inputs, cotangents).unwrap_err();
    assert_eq!(typed.to_string(), plain.to_string());

    let (inputs, cotangents) = affine_of(&[tensor(&[2, 5], 1), tensor(&[2, 5], 2), tensor(&[2, 5], 3)]);
    let out = affine::gradient().call(inputs, cotangents).unwrap();
    let bars = AffineGradientsCotangents { a: Some(tensor(&[2, 6], 1)), ..Default::default() };
    let error = out.backward(bars).unwrap_err();
    assert!(error.to_string().contains("`a.bar.bar`"), "{error}");
}

#[test]
fn a_gradient_is_explained_and_called_without_names() {
    let kernel = affine::gradient().gradient().kernel().unwrap();
    let params: Vec<&str> = kernel.program().unwrap().params.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(params, ["a", "b", "h0", "h.bar", "h_last.bar", "a.bar.bar", "b.bar.bar", "h0.bar.bar"]);
    assert_eq!(format!("{:?}", affine::gradient()), "Gradient { kernel: \"affine\", order: 1 }");
}

#[test]
fn kernels_in_a_function_have_gradients() {
    scan! {
        fn squares(x: f64[T]) -> (y: f64[T]) {
            y = x * x;
        }
    }
    let (x, one) = (Tensor::from_slice(&[3.0], &[1]).unwrap(), Tensor::from_slice(&[1.0], &[1]).unwrap());
    let out = squares::gradient().call(Squares { x }, SquaresCotangents { y: Some(one.clone()) }).unwrap();
    assert_eq!(floats(&out.gradients.x), [6.0]);
    let second = out.backward(SquaresGradientsCotangents { x: Some(one) }).unwrap();
    assert_eq!((floats(&second.inputs.x), floats(&second.cotangents.y.unwrap())), (vec![2.0], vec![6.0]));
}
