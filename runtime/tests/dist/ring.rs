//! Attention whose keys are divided, beside the interpreter's whole one.

use std::thread;
use std::time::Duration;

use oplus::dist::{Attention, Group, Mask, Rows, attention};
use oplus::{Elem, Error, Tensor};
use oplus_dsl::ir::Program;
use oplus_front::library_programs;

use crate::harness::{Case, divisions, numbers, tensor};

/// Where the rows are in q, o and lse, and in k and v.
const M: usize = 3;
const N: usize = 2;

fn program(mask: Mask) -> Program {
    let name = if mask == Mask::All { "attention" } else { "attention_causal" };
    library_programs().into_iter().find(|program| program.name == name).unwrap()
}

/// The whole, with that many rows of queries and of keys.
fn case(mask: Mask, (queries, keys): (usize, usize), seed: u64) -> Case {
    let program = program(mask);
    let size = |name: &String| match name.as_str() {
        "M" => queries,
        "N" => keys,
        "E" => 3,
        _ => 2,
    };
    Case::new(&program, "N", &program.axes.iter().map(size).collect::<Vec<_>>(), seed)
}

/// Of each rank o, lse and the gradients of q, k and v.
fn run(case: &Case, mask: Mask, queries: &Rows, rows: &Rows) -> Vec<Result<[Tensor; 5], Error>> {
    let given = |k: usize| tensor(case.inputs[k].as_ref().unwrap(), Elem::F64);
    let (q, k, v) = (given(0), given(1), given(2));
    let bars = [0, 1].map(|k| tensor(&case.cotangents[k], Elem::F64));
    let rank = |group: Group| {
        let rank = group.rank();
        let (q, k, v) = (queries.deal(&q, M, rank)?, rows.deal(&k, N, rank)?, rows.deal(&v, N, rank)?);
        let made = attention(&group, rows, mask, Attention { q, k, v })?;
        let [o_bar, lse_bar] = [queries.deal(&bars[0], M, rank)?, queries.deal(&bars[1], M, rank)?];
        let Attention { q, k, v } = made.backward(Some(&o_bar), Some(&lse_bar))?;
        Ok([made.o, made.lse, q, k, v])
    };
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = Group::threads_with_timeout(rows.ranks(), Duration::from_secs(60))
            .into_iter()
            .map(|group| scope.spawn(move || rank(group)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

fn check(mask: Mask, queries: &Rows, rows: &Rows, seed: u64) {
    let case = case(mask, (queries.total(), rows.total()), seed);
    let ranks: Vec<[Tensor; 5]> = run(&case, mask, queries, rows).into_iter().map(Result::unwrap).collect();
    let gradients = case.gradients.iter().flatten().map(|gradient| gradient.as_ref().unwrap());
    let wanted: Vec<Tensor> = case.outputs.iter().chain(gradients).map(|array| tensor(array, Elem::F64)).collect();
    for (k, name) in ["o", "lse", "q.bar", "k.bar", "v.bar"].into_iter().enumerate() {
        let parts: Vec<Tensor> = ranks.iter().map(|rank| rank[k].clone()).collect();
        let (dealt, axis) = if k < 3 { (queries, M) } else { (rows, N) };
        let found = dealt.undo(&parts, axis).unwrap();
        assert_eq!(found.shape(), wanted[k].shape(), "{name}");
        for (x, y) in numbers(&found).into_iter().zip(numbers(&wanted[k])) {
            assert!(x == y || (x - y).abs() < 1e-12 * (1.0 + y.abs()), "{name} of {rows:?}: {x}, not {y}");
        }
    }
}

#[test]
fn all_keys_are_seen_whoever_holds_them() {
    for (seed, n) in [(1, 1), (2, 2), (3, 13)] {
        for parts in divisions(n) {
            let rows = Rows::in_order(&parts);
            check(Mask::All, &rows, &rows, seed);
            // Queries need not be dealt as keys are.
            let queries = Rows::in_order(&vec![2; parts.len()]);
            check(Mask::All, &queries, &rows, seed);
            check(Mask::All, &queries, &Rows::zigzag(n, parts.len()), seed);
        }
    }
}

#[test]
fn a_query_sees_the_keys_up_to_its_own_position() {
    for (seed, n) in [(1, 1), (2, 2), (3, 13), (4, 30)] {
        for parts in divisions(n) {
            let (in_order, zigzag) = (Rows::in_order(&parts), Rows::zigzag(n, parts.len()));
            check(Mask::Causal, &in_order, &in_order, seed);
            check(Mask::Causal, &zigzag, &zigzag, seed);
        }
    }
}

#[test]
fn of_no_keys_the_mean_is_zero() {
    let (queries, none) = (Rows::in_order(&[1, 2]), Rows::in_order(&[0, 0]));
    let case = case(Mask::All, (3, 0), 5);
    for rank in run(&case, Mask::All, &queries, &none) {
        let [o, lse, q, ..] = rank.unwrap();
        assert!(numbers(&o).iter().chain(&numbers(&q)).all(|x| *x == 0.0));
        assert!(numbers(&lse).iter().all(|x| *x == f64::NEG_INFINITY));
    }
}

#[test]
fn the_bits_of_a_ring_are_the_same_in_every_run() {
    let rows = Rows::zigzag(23, 3);
    let case = case(Mask::Causal, (23, 23), 9);
    let bits = || -> Vec<Vec<u64>> {
        let ranks = run(&case, Mask::Causal, &rows, &rows).into_iter().flat_map(Result::unwrap);
        ranks.map(|tensor| numbers(&tensor).into_iter().map(f64::to_bits).collect()).collect()
    };
    let first = bits();
    (0..100).for_each(|_| assert_eq!(bits(), first));
}

#[test]
fn rows_are_dealt_once_and_come_back() {
    for (rows, ranks) in [(0, 1), (1, 2), (7, 3), (12, 3), (29, 7)] {
        let whole = Tensor::from_vec((0..2 * rows as i64).collect(), &[2, rows]).unwrap();
        for dealt in [Rows::zigzag(rows, ranks), Rows::in_order(&divisions(rows)[2])] {
            let parts: Vec<Tensor> = (0..dealt.ranks()).map(|rank| dealt.deal(&whole, 1, rank).unwrap()).collect();
            assert_eq!(parts.iter().map(|part| part.shape()[1]).sum::<usize>(), rows);
            let back = dealt.undo(&parts, 1).unwrap();
            assert_eq!(back.to_vec::<i64>().unwrap(), whole.to_vec::<i64>().unwrap());
        }
        // A causal query sees as many keys as there are before it: the sums differ by no more than a chunk's rounding.
        let work = |rank: usize| Rows::zigzag(rows, ranks).of(rank).iter().cloned().flatten().sum::<usize>();
        let (least, most) = ((0..ranks).map(work).min().unwrap(), (0..ranks).map(work).max().unwrap());
        assert!(rows % (2 * ranks) != 0 || most == least, "{rows} over {ranks}");
    }
}

/// The errors of two ranks that attend so.
fn refused(rank: impl Fn(&Group) -> Result<(), Error> + Sync) -> Vec<Option<Error>> {
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = Group::threads_with_timeout(2, Duration::from_millis(300))
            .into_iter()
            .map(|group| scope.spawn(move || rank(&group).err()))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn what_does_not_fit_is_said() {
    let of = |shape: &[usize]| Tensor::zeros(Elem::F32, shape, &oplus::Device::Cpu).unwrap();
    let attend = |group: &Group, rows: &Rows, mask, n: usize| {
        let inputs = Attention { q: of(&[1, 1, 1, n, 2]), k: of(&[1, 1, n, 2]), v: of(&[1, 1, n, 2]) };
        attention(group, rows, mask, inputs).map(drop)
    };
    let errors = refused(|group| attend(group, &Rows::in_order(&[3, 3]), Mask::All, 4));
    let words = "axis N has size 3 in `the rows of this rank` but 4 in `k`";
    assert_eq!(errors[0].as_ref().unwrap().to_string(), words);
    let errors = refused(|group| attend(group, &Rows::in_order(&[3, 3, 3]), Mask::All, 3));
    assert_eq!(errors[0].as_ref().unwrap().to_string(), "2 sizes of shards are needed, 3 were given");
    let errors = refused(|group| {
        let mask = if group.rank() == 0 { Mask::All } else { Mask::Causal };
        attend(group, &Rows::in_order(&[3, 3]), mask, 3)
    });
    assert!(errors.iter().any(|e| matches!(e, Some(Error::RanksDisagree { what, .. }) if what == "the program")));
    let inputs = Attention { q: of(&[1, 3, 2]), k: of(&[1, 1, 3, 2]), v: of(&[1, 1, 3, 2]) };
    let error = attention(&Group::threads(1)[0], &Rows::in_order(&[3]), Mask::All, inputs).err().unwrap();
    assert_eq!(error.to_string(), "`q` has 3 axes, it must have 5: [B, G, R, M, E]");
}
