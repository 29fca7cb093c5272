//! Whole = chunks threaded through the state, to the bit, where chunks begin at the borders of the engine's parts.

use std::ops::Range;

use oplus_dsl::Ty;
use oplus_dsl::build::{Builder, Direction};
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Axis, Operator, Program};
use oplus_dsl::testing::{cut, inputs, operators};
use oplus_dsl::typing::TypeError;

use super::harness::{Strides, run_with};
use crate::cpu::Compiled;

/// A scan of an operator along L whose states are given and taken.
pub(super) struct Recurrence<'a> {
    pub(super) operator: &'a Operator,
    pub(super) axes: [&'a str; 2],
    pub(super) reverse: bool,
    /// How many fields are the same at all times.
    pub(super) constants: usize,
    /// Whether the states before each element are outputs, too.
    pub(super) gives_before: bool,
}

impl Recurrence<'_> {
    pub(super) fn program(&self) -> Program {
        let mut b = Builder::new(&self.operator.name);
        self.build(&mut b).expect("a scan");
        b.finish()
    }

    fn build(&self, b: &mut Builder) -> Result<(), TypeError> {
        let (operator, reverse) = (self.operator, self.reverse);
        let all = self.axes.map(|name| b.axis(name).expect("a new axis"));
        let (axis, batch) = if self.axes[0] == "L" { (all[0], all[1]) } else { (all[1], all[0]) };
        let elem = |k: usize| operator.fields[k].ty.elem().expect("a scalar");
        let (mut elements, mut init) = (vec![], vec![]);
        for (k, field) in operator.fields.iter().enumerate() {
            let own = if k < self.constants { &[batch][..] } else { &all };
            elements.push(b.param(&field.name, own, elem(k), None)?);
            init.push(b.param(&format!("{}_init", field.name), &[batch], elem(k), None)?);
        }
        let id = b.operator(operator.clone());
        let after = b.scan(axis, id, &elements, &init, Direction { reverse, exclusive: false })?;
        for (k, field) in operator.fields.iter().enumerate() {
            let last = if reverse { b.first(axis, after[k], init[k])? } else { b.last(axis, after[k], init[k])? };
            b.output(&format!("{}_after", field.name), &all, elem(k), after[k])?;
            b.output(&format!("{}_last", field.name), &[batch], elem(k), last)?;
        }
        if self.gives_before {
            let before = b.scan(axis, id, &elements, &init, Direction { reverse, exclusive: true })?;
            for (k, field) in operator.fields.iter().enumerate() {
                b.output(&format!("{}_before", field.name), &all, elem(k), before[k])?;
            }
        }
        Ok(())
    }
}

/// The times from one to another of a tensor; all of one without times.
pub(super) fn times(program: &Program, array: &Array, axes: &[Axis], part: Range<usize>) -> Array {
    cut(array, axes.iter().position(|axis| Some(*axis) == program.axis("L")), part)
}

pub(super) fn bits(array: &Array) -> Vec<u64> {
    array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect()
}

/// The outputs of chunks between `ends`, each from the state that the one before left, are those of the whole, on one
/// thread and on all.
fn check(program: &Program, reverse: bool, others: usize, ends: &[usize]) {
    let time = program.axis("L").expect("the scan's axis").0 as usize;
    let sizes = |n: usize| -> Vec<usize> { (0..2).map(|k| if k == time { n } else { others }).collect() };
    let run = |inputs: &[Option<Array>], n: usize, workers: usize| {
        let compiled = Compiled::new(program, false).unwrap().with_workers(workers);
        run_with(&compiled, program, &sizes(n), inputs, Strides::Dense)
    };
    let all = inputs(program, &sizes(ends[ends.len() - 1]), 7);
    let whole = run(&all, ends[ends.len() - 1], usize::MAX);
    let what = |name: &str| format!("`{name}` of {others}, reverse: {reverse}, {ends:?}, of\n{program}");
    for (output, (whole, alone)) in program.outputs.iter().zip(whole.iter().zip(run(&all, ends[ends.len() - 1], 1))) {
        assert!(bits(whole) == bits(&alone), "one thread: {}", what(&output.name));
    }
    let starts = [0].iter().chain(ends).copied();
    let mut chunks: Vec<(usize, usize)> = starts.zip(ends.iter().copied()).collect();
    if reverse {
        chunks.reverse();
    }
    let mut found: Vec<Array> = vec![];
    for (from, to) in chunks {
        let own = program.params.iter().zip(&all).map(|(param, input)| {
            let handed = param.name.strip_suffix("_init").and_then(|field| {
                let last = program.outputs.iter().position(|y| y.name == format!("{field}_last"))?;
                found.get(last).cloned()
            });
            handed.or_else(|| Some(times(program, input.as_ref()?, &param.axes, from..to)))
        });
        found = run(&own.collect::<Vec<_>>(), to - from, usize::MAX);
        for ((output, whole), found) in program.outputs.iter().zip(&whole).zip(&found) {
            if !output.name.ends_with("_last") {
                let wanted = times(program, whole, &output.axes, from..to);
                assert!(bits(found) == bits(&wanted), "from {from}: {}", what(&output.name));
            }
        }
    }
    for ((output, whole), found) in program.outputs.iter().zip(&whole).zip(&found) {
        if output.name.ends_with("_last") {
            assert!(bits(found) == bits(whole), "{}", what(&output.name));
        }
    }
}

/// Several operators and element types, both directions, cut at multiples of `part`: one beside a border, primes, many.
fn check_all(axes: [&str; 2], others: usize, part: usize) {
    let cuts: [Vec<usize>; 4] = [
        vec![part, 2 * part, 2 * part + 1],
        vec![2 * part, 3 * part - 1],
        vec![part, 3 * part, 3 * part + 1009 % part],
        (1..=7).map(|k| k * part).collect(),
    ];
    for ty in [Ty::F32, Ty::F64].into_iter().take(if others > 3 { 1 } else { 2 }) {
        let [sum, affine, log_sum_exp] = [operators::sum, operators::affine, operators::log_sum_exp].map(|op| op(ty));
        for operator in [sum, affine, log_sum_exp, operators::matrix(ty), operators::softmax(ty)] {
            for reverse in [false, true] {
                let scan = Recurrence { operator: &operator, axes, reverse, constants: 0, gives_before: true };
                let program = scan.program();
                let most = if operator.fields.len() > 2 || others > 3 { 2 } else { 4 };
                cuts[..most].iter().for_each(|ends| check(&program, reverse, others, ends));
            }
        }
    }
}

#[test]
fn chunks_of_one_long_row_have_the_bits_of_the_whole() {
    check_all(["B", "L"], 1, 16_384);
}

#[test]
fn chunks_of_rows_have_the_bits_of_the_whole() {
    check_all(["B", "L"], 3, 16_384);
    check_all(["B", "L"], 37, 16_384);
}

#[test]
fn chunks_of_columns_have_the_bits_of_the_whole() {
    check_all(["L", "B"], 3, 4096);
    check_all(["L", "B"], 70, 128);
    check_all(["L", "B"], 600, 32);
}

/// Whether it is one call or many, one that begins without a state or with one.
#[test]
fn a_row_without_a_first_state_hands_on_the_same_state() {
    let lengths = [16_384, 32_768, 40_000];
    for length in lengths {
        let (a, b) = (numbers(length, 3), numbers(length, 4));
        let call = |from: usize, to: usize, h0: Option<&crate::Tensor>| {
            let slice = |x: &[f32]| crate::Tensor::from_slice(&x[from..to], &[1, to - from]).unwrap();
            crate::kernels::affine::kernel().call(&[Some(&slice(&a)), Some(&slice(&b)), h0]).unwrap().0
        };
        let floats =
            |x: &crate::Tensor| -> Vec<u32> { x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect() };
        let whole = call(0, length, None);
        let (mut handed, mut from, mut all) = (None, 0, vec![]);
        while from < length {
            let to = length.min(from + 16_384);
            let part = call(from, to, handed.as_ref());
            all.extend(floats(&part[0]));
            (handed, from) = (Some(part[1].clone()), to);
        }
        assert!(all == floats(&whole[0]), "{length}");
        assert_eq!(handed.map(|h| floats(&h)), Some(floats(&whole[1])), "{length}");
    }
}

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = oplus_dsl::rng::Rng::new(seed);
    (0..n).map(|_| rng.between(-1.0, 1.0) as f32).collect()
}
