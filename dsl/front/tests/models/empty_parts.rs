//! Merging softmax-weighted parts of which any may be nothing, in calls of `f64`, against the formula with its derivatives.
//!
//! With w[p] = exp(lse[p] − lse) over the parts that are something, mean = Σ w·o, and for the cotangents ō and l̄ of mean and
//! log-sum-exp, ō[p] = w[p]·ō and l̄[p] = w[p]·(Σ ō·(o[p] − mean) + l̄). A part of nothing has no gradient.

use oplus_dsl::interpret::{Array, Order};
use oplus_dsl::rng::Rng;

use crate::harness::{Named, cotangents, floats, gradients, in_f64, numbers, run, stored};

const PARTS: usize = 3;
const WIDTH: usize = 2;

/// Parts by rows: their means and log-sum-exps.
struct Parts {
    o: Vec<f64>,
    lse: Vec<f64>,
}

impl Parts {
    /// Parts of rows, one for each choice of which are nothing.
    fn all(parts: usize) -> Parts {
        let (rows, mut rng) = (1 << parts, Rng::new(3));
        let mut all = Parts { o: numbers(parts * rows * WIDTH, &mut rng, -1.0, 1.0), lse: vec![] };
        for (p, row) in (0..parts).flat_map(|p| (0..rows).map(move |row| (p, row))) {
            let is_nothing = row >> p & 1 == 1;
            all.lse.push(if is_nothing { f64::NEG_INFINITY } else { rng.between(-3.0, 3.0) });
            if is_nothing {
                let from = (p * rows + row) * WIDTH;
                all.o[from..from + WIDTH].fill(0.0);
            }
        }
        all
    }

    fn rows(&self, parts: usize) -> usize {
        self.lse.len() / parts
    }

    /// The weights of a row's parts, their log-sum-exp and mean.
    fn merged(&self, parts: usize, row: usize) -> (Vec<f64>, f64, Vec<f64>) {
        let at = |p: usize| p * self.rows(parts) + row;
        let sum: f64 = (0..parts).map(|p| self.lse[at(p)].exp()).sum();
        let weight = |p: usize| if sum == 0.0 { 0.0 } else { self.lse[at(p)].exp() / sum };
        let weights: Vec<f64> = (0..parts).map(weight).collect();
        let mean = |f: usize| (0..parts).map(|p| weights[p] * self.o[at(p) * WIDTH + f]).sum();
        let mean = (0..WIDTH).map(mean).collect();
        (weights, sum.ln(), mean)
    }

    /// Means and log-sum-exps of all rows.
    fn outputs(&self, parts: usize) -> (Vec<f64>, Vec<f64>) {
        let rows: Vec<_> = (0..self.rows(parts)).map(|row| self.merged(parts, row)).collect();
        (rows.iter().flat_map(|row| row.2.clone()).collect(), rows.iter().map(|row| row.1).collect())
    }

    /// The gradients of all parts.
    fn gradients(&self, parts: usize, mean_bar: &[f64], lse_bar: &[f64]) -> Parts {
        let mut grad = Parts { o: vec![0.0; self.o.len()], lse: vec![0.0; self.lse.len()] };
        for row in 0..self.rows(parts) {
            let (weights, _, mean) = self.merged(parts, row);
            for (p, w) in weights.into_iter().enumerate() {
                let at = p * self.rows(parts) + row;
                let bar = &mean_bar[row * WIDTH..][..WIDTH];
                let apart = (0..WIDTH).map(|f| bar[f] * (self.o[at * WIDTH + f] - mean[f])).sum::<f64>();
                grad.lse[at] = w * (apart + lse_bar[row]);
                (0..WIDTH).for_each(|f| grad.o[at * WIDTH + f] = w * bar[f]);
            }
        }
        grad
    }
}

/// Asserts that numbers agree, and are infinite alike.
fn same(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!(x == y || (x - y).abs() <= 1e-12, "{what}, element {k}: {x} instead of {y}");
    }
}

#[test]
fn any_parts_may_be_nothing() {
    let (program, parts) = (in_f64("merge_parts"), Parts::all(PARTS));
    let rows = parts.rows(PARTS);
    let sizes = [("P", PARTS), ("B", 1), ("M", rows), ("F", WIDTH)];
    let o = Array::floats(&[PARTS, 1, rows, WIDTH], parts.o.clone());
    let lse = Array::floats(&[PARTS, 1, rows], parts.lse.clone());
    let given: Named = [("o".to_owned(), o), ("lse".to_owned(), lse)].into_iter().collect();
    for order in [Order::Sequential, Order::Tree] {
        let found = run(&program, &given, &sizes, stored(order));
        let (mean, total) = parts.outputs(PARTS);
        same("mean", floats(&found["mean"]), &mean);
        same("total", floats(&found["total"]), &total);
        let bars = cotangents(&found, 5);
        let derived = gradients(&program, (&given, &found, &bars), &sizes, stored(order));
        let by_hand = parts.gradients(PARTS, floats(&bars["mean"]), floats(&bars["total"]));
        same("the gradient of o", floats(&derived["o"]), &by_hand.o);
        same("the gradient of lse", floats(&derived["lse"]), &by_hand.lse);
    }
}

#[test]
fn blocks_of_nothing_merge_to_nothing() {
    let programs = oplus_front::standard_programs();
    let program = programs.iter().find(|program| program.name == "softmax_merge").expect("a kernel");
    let (program, parts) = (program.instantiate(oplus_dsl::Elem::F64), Parts::all(PARTS));
    let rows = parts.rows(PARTS);
    let sizes = [("B", rows), ("P", PARTS), ("V", WIDTH)];
    // By rows instead of by parts: m is the log-sum-exp and d is 1, or nothing at all.
    let places: Vec<usize> = (0..rows).flat_map(|row| (0..PARTS).map(move |p| p * rows + row)).collect();
    let m: Vec<f64> = places.iter().map(|at| parts.lse[*at]).collect();
    let d: Vec<f64> = m.iter().map(|m| if m.is_infinite() { 0.0 } else { 1.0 }).collect();
    let o: Vec<f64> = places.iter().flat_map(|at| parts.o[at * WIDTH..][..WIDTH].to_vec()).collect();
    let given: Named = [
        ("m".to_owned(), Array::floats(&[rows, PARTS], m)),
        ("d".to_owned(), Array::floats(&[rows, PARTS], d)),
        ("o".to_owned(), Array::floats(&[rows, PARTS, WIDTH], o)),
    ]
    .into_iter()
    .collect();
    let found = run(&program, &given, &sizes, stored(Order::Tree));
    let (mean, lse) = parts.outputs(PARTS);
    same("mean", floats(&found["mean"]), &mean);
    same("lse", floats(&found["lse"]), &lse);
    let bars = cotangents(&found, 5);
    let derived = gradients(&program, (&given, &found, &bars), &sizes, stored(Order::Tree));
    let by_hand = parts.gradients(PARTS, floats(&bars["mean"]), floats(&bars["lse"]));
    let o_bar: Vec<f64> = places.iter().flat_map(|at| by_hand.o[at * WIDTH..][..WIDTH].to_vec()).collect();
    let m_bar: Vec<f64> = places.iter().map(|at| by_hand.lse[*at]).collect();
    let something = |k: usize| parts.lse[places[k]].is_finite();
    let of = |bar: &[f64], width: usize| {
        (0..bar.len()).map(|k| if something(k / width) { bar[k] } else { 0.0 }).collect::<Vec<_>>()
    };
    same("the gradient of o", &of(floats(&derived["o"]), WIDTH), &o_bar);
    same("the gradient of m", &of(floats(&derived["m"]), 1), &m_bar);
    for (name, bar) in &derived {
        assert!(floats(bar).iter().all(|bar| bar.is_finite()), "the gradient of {name} is finite: {bar:?}");
    }
}

/// Inputs of [`merge`](fn@merge): two parts, in all combinations.
fn two() -> (Parts, Named, [(&'static str, usize); 3]) {
    let (parts, rows) = (Parts::all(2), 4);
    let mut given = Named::new();
    for (p, (o, lse)) in [("o1", "lse1"), ("o2", "lse2")].into_iter().enumerate() {
        let (of_o, of_lse) = (&parts.o[p * rows * WIDTH..][..rows * WIDTH], &parts.lse[p * rows..][..rows]);
        given.insert(o.into(), Array::floats(&[1, rows, WIDTH], of_o.to_vec()));
        given.insert(lse.into(), Array::floats(&[1, rows], of_lse.to_vec()));
    }
    (parts, given, [("B", 1), ("M", rows), ("F", WIDTH)])
}

#[test]
fn two_parts_merge_to_what_they_are() {
    let (parts, given, sizes) = two();
    let found = run(&in_f64("merge"), &given, &sizes, stored(Order::Sequential));
    let (o, lse) = parts.outputs(2);
    same("o", floats(&found["o"]), &o);
    same("lse", floats(&found["lse"]), &lse);
}

#[test]
fn gradients_go_to_the_part_that_is_something() {
    let (parts, given, sizes) = two();
    let (program, mode) = (in_f64("merge"), stored(Order::Sequential));
    let found = run(&program, &given, &sizes, mode);
    let bars = cotangents(&found, 5);
    let derived = gradients(&program, (&given, &found, &bars), &sizes, mode);
    let by_hand = parts.gradients(2, floats(&bars["o"]), floats(&bars["lse"]));
    let of = |first: &str, second: &str| [floats(&derived[first]), floats(&derived[second])].concat();
    same("the gradients of o", &of("o1", "o2"), &by_hand.o);
    same("the gradients of lse", &of("lse1", "lse2"), &by_hand.lse);
}
