//! The gradient of the whole = those of chunks threaded through the cotangents of states, to the bit, where chunks begin
//! at the borders of the engine's parts.

use std::collections::HashMap;

use oplus_dsl::Ty;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::{Operator, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::testing::{operator, operators};

use super::borders::{Recurrence, bits, times};
use super::harness::{Strides, run_with};
use crate::cpu::Compiled;

type Named = HashMap<String, Array>;

/// A recurrence, its gradient, and the sizes of calls.
struct Law {
    forward: Program,
    backward: Program,
    reverse: bool,
    others: usize,
    /// Whether calls combine in order.
    ordered: bool,
    /// The bits that chunks have in common with the whole.
    shared: Shared,
}

/// The bits that gradients of chunks have in common with those of the whole.
#[derive(Clone, Copy, PartialEq)]
enum Shared {
    Bits,
    /// To rounding, relative to the largest.
    Numbers,
}

impl Law {
    fn of(scan: &Recurrence<'_>, others: usize) -> Law {
        let forward = scan.program();
        let backward = adjoint(&forward).expect("differentiable");
        Law { forward, backward, reverse: scan.reverse, others, ordered: false, shared: Shared::Bits }
    }

    /// Asserts that a tensor has what it should of another one.
    fn compare(&self, found: &Array, wanted: &Array, what: &str) {
        if self.shared == Shared::Bits {
            return assert!(bits(found) == bits(wanted), "{what}");
        }
        let (found, wanted) = (found.as_floats().expect("floats"), wanted.as_floats().expect("floats"));
        let largest = wanted.iter().fold(1e-6_f64, |most, x| most.max(x.abs()));
        assert!(found.iter().zip(wanted).all(|(x, y)| (x - y).abs() <= 1e-5 * largest), "{what}");
    }

    /// The outputs of a program for tensors by name.
    fn run(&self, program: &Program, given: &Named, n: usize, workers: usize) -> Named {
        let sizes = program.axes.iter().map(|axis| if axis == "L" { n } else { self.others }).collect::<Vec<_>>();
        let inputs: Vec<Option<Array>> = program.params.iter().map(|param| given.get(&param.name).cloned()).collect();
        let compiled = Compiled::new(program, self.ordered).unwrap().with_workers(workers);
        let outputs = run_with(&compiled, program, &sizes, &inputs, Strides::Dense);
        program.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect()
    }

    /// The inputs of a call and its results.
    fn call(&self, mut given: Named, n: usize) -> Named {
        given.extend(self.run(&self.forward, &given, n, usize::MAX));
        given
    }

    /// Coefficients near 1, decays' logarithms below 0, cotangents of all outputs.
    fn inputs(&self, n: usize) -> Named {
        let mut rng = Rng::new(n as u64);
        let mut random = |name: &str, axes: &[oplus_dsl::ir::Axis]| {
            let is_time = |axis: &oplus_dsl::ir::Axis| self.forward.axis_name(*axis) == "L";
            let sizes: Vec<usize> = axes.iter().map(|axis| if is_time(axis) { n } else { self.others }).collect();
            let (least, most) = match name {
                "a" | "a_re" | "d" => (0.5, 0.99),
                "g" => (-0.7, -0.01),
                _ => (-0.1, 0.1),
            };
            let all = (0..sizes.iter().product()).map(|_| f64::from(rng.between(least, most) as f32));
            Array { data: Data::Float(all.collect()), sizes }
        };
        let params = self.forward.params.iter().map(|p| (p.name.clone(), random(&p.name, &p.axes)));
        let mut all: Named = params.collect();
        let outputs = self.forward.outputs.iter();
        all.extend(outputs.map(|y| (format!("{}.bar", y.name), random("", &y.axes))));
        all
    }

    /// The times of a chunk of all tensors.
    fn cut(&self, all: &Named, from: usize, to: usize) -> Named {
        let params = self.forward.params.iter().map(|p| (p.name.clone(), &p.axes));
        let cotangents = self.forward.outputs.iter().map(|y| (format!("{}.bar", y.name), &y.axes));
        let part = |(name, axes): (String, &Vec<_>)| {
            let part = times(&self.forward, &all[&name], axes, from..to);
            (name, part)
        };
        params.chain(cotangents).map(part).collect()
    }

    /// Tensors of states under the names that others have.
    fn handed<'a>(&self, from: &'a Named, [old, new]: [&'a str; 2]) -> impl Iterator<Item = (String, Array)> {
        let named = from.iter().filter_map(move |(name, x)| Some((name.strip_suffix(old)?, x)));
        named.map(move |(field, x)| (format!("{field}{new}"), x.clone()))
    }

    /// Chunks between `ends` against the whole, on one thread, on some and on all.
    fn check(&self, ends: &[usize]) {
        let n = ends[ends.len() - 1];
        let inputs = self.inputs(n);
        let called = self.call(inputs.clone(), n);
        let whole = self.run(&self.backward, &called, n, usize::MAX);
        let what = |name: &str| format!("`{name}` of {}, {ends:?}, of\n{}", self.others, self.backward);
        for workers in [1, 3] {
            let again = self.run(&self.backward, &called, n, workers);
            again
                .iter()
                .for_each(|(name, x)| assert!(bits(x) == bits(&whole[name]), "{workers} threads: {}", what(name)));
        }
        let mut chunks: Vec<(usize, usize)> = [0].iter().chain(ends).copied().zip(ends.iter().copied()).collect();
        if self.reverse {
            chunks.reverse();
        }
        let mut calls: Vec<Named> = vec![];
        for (from, to) in &chunks {
            let mut own = self.cut(&inputs, *from, *to);
            own.extend(calls.last().into_iter().flat_map(|before| self.handed(before, ["_last", "_init"])));
            calls.push(self.call(own, to - from));
        }
        let mut found = Named::new();
        for ((from, to), mut own) in chunks.into_iter().zip(calls).rev() {
            own.extend(self.handed(&found, ["_init.bar", "_last.bar"]));
            found = self.run(&self.backward, &own, to - from, usize::MAX);
            let with_time = self.backward.outputs.iter().filter(|y| y.axes.len() == 2);
            for output in with_time {
                let wanted = times(&self.backward, &whole[&output.name], &output.axes, from..to);
                self.compare(&found[&output.name], &wanted, &format!("from {from}: {}", what(&output.name)));
            }
        }
        for (name, found) in found.iter().filter(|(name, _)| name.ends_with("_init.bar")) {
            assert!(found.as_floats().unwrap().iter().all(|x| x.is_finite()), "{}", what(name));
            self.compare(found, &whole[name], &what(name));
        }
    }
}

/// Operators, with how many of their fields are the same at all times.
fn operators(ty: Ty) -> Vec<(Operator, usize)> {
    use operators::{affine, complex_affine, log_decay, log_sum_exp, matrix, softmax, sum};
    let varying = [sum(ty), affine(ty), log_decay(ty), log_sum_exp(ty), softmax(ty), complex_affine(ty), matrix(ty)];
    let constant = [(affine(ty), 1), (log_decay(ty), 1), (complex_affine(ty), 2)];
    varying.map(|operator| (operator, 0)).into_iter().chain(constant).collect()
}

/// Several recurrences, both directions, cut at multiples of `part`.
fn check_all(ty: Ty, axes: [&str; 2], others: usize, part: usize) {
    for (operator, constants) in operators(ty) {
        for reverse in [false, true] {
            let scan = Recurrence { operator: &operator, axes, reverse, constants, gives_before: false };
            let law = Law::of(&scan, others);
            law.check(&[part, 2 * part, 2 * part + 1]);
            law.check(&[2 * part, 3 * part + 1009 % part]);
        }
    }
}

#[test]
fn chunks_of_one_long_row_have_the_gradients_of_the_whole() {
    check_all(Ty::F32, ["B", "L"], 1, 16_384);
    check_all(Ty::F64, ["B", "L"], 1, 16_384);
}

#[test]
fn chunks_of_rows_have_the_gradients_of_the_whole() {
    check_all(Ty::F32, ["B", "L"], 3, 16_384);
    check_all(Ty::F64, ["B", "L"], 3, 16_384);
    check_all(Ty::F32, ["B", "L"], 37, 16_384);
}

#[test]
fn chunks_of_columns_have_the_gradients_of_the_whole() {
    check_all(Ty::F32, ["L", "B"], 3, 4096);
    check_all(Ty::F32, ["L", "B"], 70, 128);
    check_all(Ty::F64, ["L", "B"], 600, 32);
}

/// A moving point: durations add up, velocities add up, and a position moves with the velocity so far.
fn motion(ty: Ty) -> Operator {
    let fields = ["n", "v", "p"].map(|name| (name, ty, oplus_dsl::ir::Literal::Float(0.0)));
    operator("Motion", fields, |[ln, lv, lp], [rn, rv, rp]| [ln + rn, lv + rv, lp + lv * rn + rp])
}

/// In order the gradients of chunks have the bits of the whole wherever it is cut, if every field of the state that
/// feeds another one is fed by it in turn.
#[test]
fn in_order_chunks_cut_anywhere_have_the_gradients_of_the_whole() {
    for (operator, constants) in operators(Ty::F32) {
        for reverse in [false, true] {
            let scan = Recurrence { operator: &operator, axes: ["B", "L"], reverse, constants, gives_before: false };
            let law = Law { ordered: true, ..Law::of(&scan, 3) };
            law.check(&[1, 100, 171, 300]);
        }
    }
}

/// A state whose velocity feeds its position: the whole adds what comes back to the velocity to the cotangent of its own
/// time before it goes on, a chunk takes it as one number. So its gradients agree to rounding only.
#[test]
fn in_order_a_field_that_feeds_another_has_gradients_to_rounding() {
    let operator = motion(Ty::F32);
    for reverse in [false, true] {
        let scan = Recurrence { operator: &operator, axes: ["B", "L"], reverse, constants: 0, gives_before: false };
        let law = Law { ordered: true, shared: Shared::Numbers, ..Law::of(&scan, 3) };
        law.check(&[1, 100, 171, 300]);
    }
}
