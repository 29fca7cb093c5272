//! The standard kernels against plain loops, at awkward lengths.

use crate::common::{close, int_row, row, run};
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::Program;
use oplus_dsl::rng::Rng;
use oplus_front::standard_programs;

const LENGTHS: [usize; 7] = [0, 1, 2, 3, 7, 8, 31];

fn kernel(name: &str) -> Program {
    standard_programs().into_iter().find(|program| program.name == name).expect("a standard kernel")
}

fn numbers(n: usize, seed: u64, low: f64, high: f64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.between(low, high)).collect()
}

fn floats(array: &Array) -> &[f64] {
    array.as_floats().expect("floats")
}

/// The states of a recurrence: s[t] = step(s[t−1], t).
fn recurrence<S: Clone>(n: usize, init: S, step: impl Fn(&S, usize) -> S) -> Vec<S> {
    let mut state = init;
    (0..n)
        .map(|t| {
            state = step(&state, t);
            state.clone()
        })
        .collect()
}

/// Checks a kernel of one row x and one output against its recurrence.
fn check_row(name: &str, low: f64, high: f64, init: f64, step: impl Fn(f64, f64) -> f64) {
    for n in LENGTHS {
        let x = numbers(n, n as u64, low, high);
        let outputs = run(&kernel(name), &[("x", row(&x))]);
        close(floats(&outputs[0]), &recurrence(n, init, |s, t| step(*s, x[t])));
    }
}

#[test]
fn running_sums_products_and_extremes() {
    check_row("cumsum", -1.0, 1.0, 0.0, |s, x| s + x);
    check_row("cumprod", 0.5, 1.5, 1.0, |s, x| s * x);
    check_row("cummax", -1.0, 1.0, f64::NEG_INFINITY, f64::max);
    check_row("cummin", -1.0, 1.0, f64::INFINITY, f64::min);
    check_row("logcumsumexp", -9.0, 9.0, f64::NEG_INFINITY, |s, x| (s.exp() + x.exp()).ln());
}

#[test]
fn an_exclusive_sum_lacks_the_element_itself() {
    let outputs = run(&kernel("cumsum_exclusive"), &[("x", row(&[1.0, 2.0, 4.0]))]);
    assert_eq!(floats(&outputs[0]), [0.0, 1.0, 3.0]);
    assert_eq!(floats(&outputs[1]), [7.0]);
}

#[test]
fn sums_along_the_first_axis_leave_channels_apart() {
    let x = Array::floats(&[3, 2], [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    let outputs = run(&kernel("cumsum_time_first"), &[("x", x)]);
    assert_eq!(floats(&outputs[0]), [1.0, 10.0, 3.0, 30.0, 6.0, 60.0]);
}

#[test]
fn log_cumulative_sums_of_masked_and_huge_scores_are_finite() {
    let x = [f64::NEG_INFINITY, f64::NEG_INFINITY, 800.0, 800.0, f64::NEG_INFINITY];
    let outputs = run(&kernel("logcumsumexp"), &[("x", row(&x))]);
    let twice = 800.0 + 2f64.ln();
    close(floats(&outputs[0]), &[f64::NEG_INFINITY, f64::NEG_INFINITY, 800.0, twice, twice]);
}

#[test]
fn extremes_stand_at_their_lowest_index() {
    let x = row(&[1.0, 3.0, 2.0, 3.0, 4.0, 4.0]);
    let outputs = run(&kernel("cumargmax"), &[("x", x.clone())]);
    assert_eq!(floats(&outputs[0]), [1.0, 3.0, 3.0, 3.0, 4.0, 4.0]);
    assert_eq!(outputs[1], int_row(&[0, 1, 1, 1, 4, 4]));
    let outputs = run(&kernel("cumargmin"), &[("x", x)]);
    assert_eq!(outputs[1], int_row(&[0, 0, 0, 0, 0, 0]));
}

#[test]
fn affine_recurrences_with_and_without_a_state() {
    for n in LENGTHS {
        let (a, b) = (numbers(n, 1, -1.0, 1.0), numbers(n, 2, -1.0, 1.0));
        for h0 in [0.0, 2.5] {
            let expected = recurrence(n, h0, |h, t| a[t] * h + b[t]);
            let mut inputs = vec![("a", row(&a)), ("b", row(&b))];
            if h0 != 0.0 {
                inputs.push(("h0", Array::floats(&[1], [h0])));
            }
            let outputs = run(&kernel("affine"), &inputs);
            close(floats(&outputs[0]), &expected);
            close(floats(&outputs[1]), &[expected.last().copied().unwrap_or(h0)]);
        }
    }
}

#[test]
fn the_middle_axis_can_be_scanned() {
    let shape = [1, 2, 2];
    let (a, b) = (Array::floats(&shape, [2.0, 3.0, 4.0, 5.0]), Array::floats(&shape, [1.0, 1.0, 1.0, 1.0]));
    let outputs = run(&kernel("affine_time_first"), &[("a", a.clone()), ("b", b.clone())]);
    assert_eq!(floats(&outputs[0]), [1.0, 1.0, 5.0, 6.0]);
    assert_eq!(floats(&outputs[1]), [5.0, 6.0]);
    let g = Array::floats(&shape, [2.0, 3.0, 4.0, 5.0].map(f64::ln));
    let outputs = run(&kernel("log_decay_channels"), &[("g", g), ("x", b)]);
    close(floats(&outputs[0]), &[1.0, 1.0, 5.0, 6.0]);
}

#[test]
fn moving_averages_weigh_the_new_element_with_alpha() {
    let x = numbers(9, 5, -1.0, 1.0);
    let alpha = Array::floats(&[], [0.25]);
    let outputs = run(&kernel("ema"), &[("x", row(&x)), ("alpha", alpha)]);
    close(floats(&outputs[0]), &recurrence(9, 0.0, |y, t| 0.75 * y + 0.25 * x[t]));
}

#[test]
fn log_decays_and_their_limits() {
    for n in LENGTHS {
        let (g, x) = (numbers(n, 3, -2.0, 0.0), numbers(n, 4, -1.0, 1.0));
        let outputs = run(&kernel("log_decay"), &[("g", row(&g)), ("x", row(&x))]);
        close(floats(&outputs[0]), &recurrence(n, 0.0, |s, t| g[t].exp() * s + x[t]));
    }
    let g = [0.0, 0.0, f64::NEG_INFINITY, -1e9, 0.0];
    let x = [1.0, f64::INFINITY, 3.0, 4.0, 5.0];
    let outputs = run(&kernel("log_decay"), &[("g", row(&g)), ("x", row(&x))]);
    close(floats(&outputs[0]), &[1.0, f64::INFINITY, 3.0, 4.0, 9.0]);
}

#[test]
fn one_decay_serves_a_whole_matrix() {
    let g = Array::floats(&[1, 1, 2], [0.0, 2f64.ln()]);
    let x = Array::floats(&[1, 1, 2, 1, 2], [1.0, 2.0, 3.0, 4.0]);
    let outputs = run(&kernel("monoid"), &[("g", g), ("x", x)]);
    close(floats(&outputs[0]), &[1.0, 2.0, 5.0, 8.0]);
    close(floats(&outputs[1]), &[5.0, 8.0]);
}

#[test]
fn merged_softmax_parts_are_the_softmax_of_all() {
    let (scores, values) = (numbers(5, 6, -3.0, 3.0), numbers(5, 7, -1.0, 1.0));
    let inputs = [("m", row(&scores)), ("d", row(&[1.0; 5])), ("o", Array::floats(&[1, 5, 1], values.clone()))];
    let outputs = run(&kernel("softmax_merge"), &inputs);
    let total: f64 = scores.iter().map(|s| s.exp()).sum();
    let mean: f64 = scores.iter().zip(&values).map(|(s, v)| s.exp() * v).sum::<f64>() / total;
    close(floats(&outputs[0]), &[mean]);
    close(floats(&outputs[1]), &[total.ln()]);
}

#[test]
fn packed_sequences_do_not_see_each_other() {
    let offsets = Array::ints(&[4], [0, 2, 2, 5]);
    let x = row(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let outputs = run(&kernel("segmented_cumsum"), &[("x", x.clone()), ("cu_seqlens", offsets.clone())]);
    assert_eq!(floats(&outputs[0]), [1.0, 3.0, 3.0, 7.0, 12.0]);
    let a = row(&[2.0; 5]);
    let outputs = run(&kernel("segmented_affine"), &[("a", a), ("b", x), ("cu_seqlens", offsets)]);
    assert_eq!(floats(&outputs[0]), [1.0, 4.0, 3.0, 10.0, 25.0]);
}

#[test]
fn resets_forget_the_initial_state_too() {
    let reset = Array::bools(&[1, 3], [false, true, false]);
    let inputs = [("a", row(&[2.0; 3])), ("b", row(&[1.0; 3])), ("reset", reset), ("h0", Array::floats(&[1], [10.0]))];
    let outputs = run(&kernel("affine_with_resets"), &inputs);
    assert_eq!(floats(&outputs[0]), [21.0, 1.0, 3.0]);
    assert_eq!(floats(&outputs[1]), [3.0]);
}

#[test]
fn complex_affine_recurrences() {
    let n = 7;
    let [ar, ai, br, bi] = [1, 2, 3, 4].map(|seed| numbers(n, seed, -1.0, 1.0));
    let inputs = [("ar", row(&ar)), ("ai", row(&ai)), ("br", row(&br)), ("bi", row(&bi))];
    let outputs = run(&kernel("complex_affine"), &inputs);
    let expected =
        recurrence(n, (0.0, 0.0), |(hr, hi), t| (ar[t] * hr - ai[t] * hi + br[t], ar[t] * hi + ai[t] * hr + bi[t]));
    close(floats(&outputs[0]), &expected.iter().map(|h| h.0).collect::<Vec<_>>());
    close(floats(&outputs[1]), &expected.iter().map(|h| h.1).collect::<Vec<_>>());
}

#[test]
fn powers_of_the_fibonacci_matrix() {
    let one = row(&[1.0; 10]);
    let inputs = [("a", one.clone()), ("b", one.clone()), ("c", one), ("d", row(&[0.0; 10]))];
    let outputs = run(&kernel("matrix2"), &inputs);
    assert_eq!(floats(&outputs[1]), [1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0]);
}

#[test]
fn products_of_matrices_put_the_newest_on_the_left() {
    let [a, b, c, d] = [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 0.0]].map(|entries| row(&entries));
    let outputs = run(&kernel("matrix2"), &[("a", a), ("b", b), ("c", c), ("d", d)]);
    let newest: Vec<f64> = outputs.iter().map(|p| floats(p)[1]).collect();
    assert_eq!(newest, [0.0, 1.0, 1.0, 2.0]);
}

#[test]
fn tropical_recurrences() {
    let (a, b) = (numbers(8, 1, -1.0, 1.0), numbers(8, 2, -1.0, 1.0));
    let outputs = run(&kernel("max_plus"), &[("a", row(&a)), ("b", row(&b))]);
    close(floats(&outputs[0]), &recurrence(8, f64::NEG_INFINITY, |h, t| (a[t] + h).max(b[t])));
}

#[test]
fn an_automaton_runs_over_a_text() {
    let mut rng = Rng::new(9);
    let maps: Vec<[u32; 8]> = (0..31).map(|_| std::array::from_fn(|_| rng.below(8) as u32)).collect();
    let packed = |map: &[u32; 8]| map.iter().enumerate().map(|(s, to)| i64::from(to << (3 * s))).sum::<i64>();
    let f = int_row(&maps.iter().map(packed).collect::<Vec<_>>());
    for start in 0..8 {
        let outputs = run(&kernel("automaton"), &[("f", f.clone()), ("start", Array::ints(&[1], [start]))]);
        let states = recurrence(maps.len(), start as usize, |state, t| maps[t][*state] as usize);
        assert_eq!(outputs[0], int_row(&states.iter().map(|s| *s as i64).collect::<Vec<_>>()));
    }
}
