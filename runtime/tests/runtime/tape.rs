//! The tape: gradients through several kernels, and kernels that are gradients, against differences.

use oplus::dist::Group;
use oplus::tape::Tape;
use oplus::{Kernel, Tensor, kernels, models, scan};

scan! {
    /// A plain map that uses one of its inputs twice.
    pub fn mix(x: [B, T], y: [B, T]) -> (z: [B, T]) {
        z = tanh(x) * y + erf(y);
    }

    /// The sum of squares.
    pub fn squares(x: [B, T]) -> (loss: [B]) {
        loss = sum(T, x * x);
    }
}

fn tensor(n: usize, seed: f64) -> Tensor {
    Tensor::from_vec((0..n).map(|k| ((k as f64 + seed) * 0.7).sin() * 0.8).collect::<Vec<f64>>(), &[1, n]).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

/// Two affine recurrences, a map and a loss; `a` is used three times.
fn network<'k>(tape: &mut Tape<'k>, inputs: &[Tensor]) -> ([oplus::tape::Var; 2], oplus::tape::Var) {
    let [a, b] = [0, 1].map(|k| tape.input(inputs[k].clone()));
    let h = tape.call(kernels::affine::kernel(), &[Some(a), Some(b), None]).unwrap()[0];
    let z = tape.call(mix::kernel(), &[Some(h), Some(a)]).unwrap()[0];
    let g = tape.call(kernels::affine::kernel(), &[Some(a), Some(z), None]).unwrap()[0];
    ([a, b], tape.call(squares::kernel(), &[Some(g)]).unwrap()[0])
}

#[test]
fn gradients_through_several_kernels_are_those_of_differences() {
    let inputs = [tensor(5, 1.0), tensor(5, 4.0)];
    let mut tape = Tape::new();
    let (vars, loss) = network(&mut tape, &inputs);
    let gradients = tape.backward(loss).unwrap();
    for (k, var) in vars.into_iter().enumerate() {
        for (i, found) in floats(gradients.of(var).unwrap()).into_iter().enumerate() {
            let at = |by: f64| {
                let mut moved = inputs.clone();
                let mut data = floats(&inputs[k]);
                data[i] += by;
                moved[k] = Tensor::from_vec(data, &[1, 5]).unwrap();
                let mut tape = Tape::new();
                let (_, loss) = network(&mut tape, &moved);
                floats(tape.value(loss))[0]
            };
            let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((found - expected).abs() < 1e-7 * (1.0 + expected.abs()), "{k}, {i}: {found}, {expected}");
        }
    }
}

#[test]
fn what_was_computed_otherwise_has_its_own_way_back() {
    let mut tape = Tape::new();
    let x = tape.input(tensor(4, 2.0));
    let doubled = Tensor::from_vec(floats(tape.value(x)).iter().map(|x| 2.0 * x).collect::<Vec<_>>(), &[1, 4]).unwrap();
    let y = tape.record(&[x], vec![doubled], |bars| {
        let bar: Option<Vec<f64>> = bars[0].as_ref().map(|bar| bar.to_vec().unwrap());
        let bar = bar.map(|bar| Tensor::from_vec(bar.iter().map(|x| 2.0 * x).collect::<Vec<f64>>(), &[1, 4]));
        Ok(vec![bar.transpose()?])
    })[0];
    let unused = tape.input(tensor(4, 3.0));
    let loss = tape.call(squares::kernel(), &[Some(y)]).unwrap()[0];
    let gradients = tape.backward(loss).unwrap();
    let expected: Vec<f64> = floats(tape.value(x)).iter().map(|x| 8.0 * x).collect();
    assert_eq!(floats(gradients.of(x).unwrap()), expected);
    assert!(gradients.of(unused).is_none());
}

#[test]
fn views_on_a_tape_go_back_as_they_came() {
    let mut tape = Tape::new();
    let x = tape.input(tensor(24, 2.0).reshape(&[2, 3, 4]).unwrap());
    let turned = tape.permute(x, &[2, 0, 1]).unwrap();
    let rows = tape.reshape(turned, &[1, 24]).unwrap();
    assert_eq!(tape.value(turned).shape(), [4, 2, 3]);
    assert_eq!(floats(tape.value(turned)), floats(tape.value(rows)));
    let loss = tape.call(squares::kernel(), &[Some(rows)]).unwrap()[0];
    let gradients = tape.backward(loss).unwrap();
    let gradient = gradients.of(x).unwrap();
    let expected: Vec<f64> = floats(tape.value(x)).iter().map(|x| 2.0 * x).collect();
    assert_eq!((gradient.shape(), floats(gradient)), (&[2, 3, 4][..], expected));
    assert!(tape.permute(x, &[0, 0, 1]).is_err() && tape.permute(x, &[0, 1]).is_err());
    assert!(tape.reshape(x, &[5]).is_err());
}

#[test]
fn calls_of_several_ranks_on_a_tape_are_those_of_one() {
    let inputs = [tensor(12, 1.0), tensor(12, 5.0)].map(|x| x.reshape(&[1, 12]).unwrap());
    let affine = kernels::affine::kernel();
    let pass = |group: Option<&Group>, inputs: &[Tensor]| {
        let mut tape = Tape::new();
        let [a, b] = [0, 1].map(|k| tape.input(inputs[k].clone()));
        let given = [Some(a), Some(b), None];
        let h = match group {
            None => tape.call(affine, &given).unwrap()[0],
            Some(group) => tape.call_sharded(affine, group, "T", &given).unwrap()[0],
        };
        let loss = tape.call(squares::kernel(), &[Some(h)]).unwrap()[0];
        let gradients = tape.backward(loss).unwrap();
        [a, b].map(|var| floats(gradients.of(var).unwrap()))
    };
    let whole = pass(None, &inputs);
    let ranks: Vec<_> = std::thread::scope(|scope| {
        let rank = |(rank, group): (usize, Group)| {
            let (pass, inputs) = (&pass, &inputs);
            let own = move |x: &Tensor| x.slice(1, rank * 4..rank * 4 + 4).unwrap();
            scope.spawn(move || pass(Some(&group), &inputs.each_ref().map(own)))
        };
        let ranks: Vec<_> = Group::threads(3).into_iter().enumerate().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for (k, whole) in whole.iter().enumerate() {
        let parts: Vec<f64> = ranks.iter().flat_map(|rank| rank[k].clone()).collect();
        assert_eq!(parts.len(), whole.len());
        assert!(parts.iter().zip(whole).all(|(x, y)| (x - y).abs() < 1e-12 * (1.0 + y.abs())), "{parts:?} {whole:?}");
    }
}

/// Calls a kernel at random inputs, and compares its gradient with differences of the kernel.
fn check_gradient(kernel: &Kernel, shapes: &dyn Fn(&str) -> usize) {
    let program = kernel.program().unwrap().clone();
    let mut inputs: Vec<Tensor> = vec![];
    for (k, param) in program.params.iter().enumerate() {
        let shape: Vec<usize> = param.axes.iter().map(|axis| shapes(program.axis_name(*axis))).collect();
        let n = shape.iter().product();
        inputs.push(tensor(n, k as f64 * 3.0 + 1.0).reshape(&shape).unwrap());
    }
    let given = |inputs: &[Tensor]| kernel.call(&inputs.iter().map(Some).collect::<Vec<_>>()).unwrap();
    let (outputs, call) = given(&inputs);
    let bars: Vec<Tensor> =
        outputs.iter().enumerate().map(|(k, x)| tensor(x.len(), k as f64 + 0.5).reshape(x.shape()).unwrap()).collect();
    let value = |inputs: &[Tensor]| -> f64 {
        let dot = |(x, y): (&Tensor, &Tensor)| floats(x).iter().zip(floats(y)).map(|(x, y)| x * y).sum::<f64>();
        given(inputs).0.iter().zip(&bars).map(dot).sum()
    };
    let gradients = kernel.backward(&call, &bars.iter().map(Some).collect::<Vec<_>>()).unwrap();
    for (k, gradient) in gradients.iter().enumerate() {
        let found = floats(gradient.as_ref().unwrap());
        for i in (0..found.len()).step_by(2) {
            let at = |by: f64| {
                let mut moved = inputs.clone();
                let mut data = floats(&inputs[k]);
                data[i] += by;
                moved[k] = Tensor::from_vec(data, inputs[k].shape()).unwrap();
                value(&moved)
            };
            let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
            let close = (found[i] - expected).abs() < 1e-6 * (1.0 + expected.abs());
            assert!(close, "{}, {}: {}, {expected}", program.name, program.params[k].name, found[i]);
        }
    }
}

#[test]
fn gradients_are_kernels_to_any_order() {
    let size = |axis: &str| if axis == "T" { 4 } else { 2 };
    for kernel in [kernels::affine::kernel(), kernels::log_decay::kernel(), models::multi_state_ssm::kernel()] {
        let first = kernel.gradient_kernel().unwrap();
        let second = first.gradient_kernel().unwrap();
        let third = second.gradient_kernel().unwrap();
        for gradient in [&first, &second, &third] {
            check_gradient(gradient, &size);
        }
    }
}
