//! Whole = chunks threaded through the state, to the bit, where chunks begin at the borders of the engine's parts.

use oplus_dsl::build::{Builder, Direction};
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Axis, Operator, Program};
use oplus_dsl::testing::{inputs, operators};
use oplus_dsl::typing::TypeError;
use oplus_dsl::{Elem, Ty};

use super::harness::{Strides, run_with};
use crate::cpu::Compiled;

/// The scan of an operator along L with its states given and taken, before and after each element.
fn along(operator: &Operator, axes: [&str; 2], reverse: bool) -> Program {
    let mut b = Builder::new(&operator.name);
    let all = axes.map(|name| b.axis(name).expect("a new axis"));
    let (axis, batch) = if axes[0] == "L" { (all[0], all[1]) } else { (all[1], all[0]) };
    let mut build = || {
        let (mut elements, mut init) = (vec![], vec![]);
        for field in &operator.fields {
            let elem = field.ty.elem().expect("a scalar");
            elements.push(b.param(&field.name, &all, elem, None)?);
            init.push(b.param(&format!("{}_init", field.name), &[batch], elem, None)?);
        }
        let id = b.operator(operator.clone());
        let after = b.scan(axis, id, &elements, &init, Direction { reverse, exclusive: false })?;
        let before = b.scan(axis, id, &elements, &init, Direction { reverse, exclusive: true })?;
        for (k, field) in operator.fields.iter().enumerate() {
            let (name, elem) = (&field.name, field.ty.elem().expect("a scalar"));
            let last = if reverse { b.first(axis, after[k], init[k])? } else { b.last(axis, after[k], init[k])? };
            b.output(&format!("{name}_after"), &all, elem, after[k])?;
            b.output(&format!("{name}_before"), &all, elem, before[k])?;
            b.output(&format!("{name}_last"), &[batch], elem, last)?;
        }
        Ok::<(), TypeError>(())
    };
    build().expect("a scan");
    b.finish()
}

/// The times from one to another of a tensor; all of one without times.
fn cut(program: &Program, array: &Array, axes: &[Axis], from: usize, to: usize) -> Array {
    let Some(at) = axes.iter().position(|axis| Some(*axis) == program.axis("L")) else { return array.clone() };
    let (n, inner) = (array.sizes[at], array.sizes[at + 1..].iter().product::<usize>());
    let rows = array.as_floats().expect("floats").chunks(n * inner);
    let kept: Vec<f64> = rows.flat_map(|row| row[from * inner..to * inner].to_vec()).collect();
    let mut sizes = array.sizes.clone();
    sizes[at] = to - from;
    Array::floats(&sizes, kept)
}

fn bits(array: &Array) -> Vec<u64> {
    array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect()
}

/// The outputs of chunks between `ends`, each from the state that the one before left, are those of the whole, on one
/// thread and on all.
fn check(program: &Program, reverse: bool, others: usize, ends: &[usize]) {
    let time = program.axis("L").expect("the scan's axis").0 as usize;
    let sizes = |times: usize| -> Vec<usize> { (0..2).map(|k| if k == time { times } else { others }).collect() };
    let run = |inputs: &[Option<Array>], times: usize, workers: usize| {
        let compiled = Compiled::new(program, false).unwrap().with_workers(workers);
        run_with(&compiled, program, &sizes(times), inputs, Strides::Dense)
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
            handed.or_else(|| Some(cut(program, input.as_ref()?, &param.axes, from, to)))
        });
        found = run(&own.collect::<Vec<_>>(), to - from, usize::MAX);
        for ((output, whole), found) in program.outputs.iter().zip(&whole).zip(&found) {
            if !output.name.ends_with("_last") {
                let wanted = cut(program, whole, &output.axes, from, to);
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
                let program = along(&operator, axes, reverse);
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
    let program = along(&operators::affine(Ty::F32), ["B", "L"], false);
    assert_eq!(program.outputs[0].elem, Elem::F32);
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
