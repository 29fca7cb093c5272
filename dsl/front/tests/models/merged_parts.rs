//! Attention to parts of the keys, merged: in any tree, values and gradients are those of one pass over all keys.

use oplus_dsl::interpret::{Array, Mode};
use oplus_dsl::rng::Rng;

use crate::attention::{named_sizes, same};
use crate::harness::{Named, cotangents, floats, gradients, inputs, model, run};
use crate::softmax_loops::Sizes;

const S: Sizes = Sizes { b: 1, g: 1, r: 1, m: 3, n: 23, e: 4, f: 3 };
/// Keys that no query sees.
const HIDDEN: (usize, usize) = (8, 15);

/// Queries, keys, values and a bias that hides some keys: from all queries, and all keys from the first query.
fn given() -> Named {
    let mut given = inputs(&model("attention_bias"), &named_sizes(S), 3, |_| true);
    let bias = given.get_mut("bias").expect("a bias");
    let mut scores = floats(bias).to_vec();
    for (at, score) in scores.iter_mut().enumerate() {
        if at < S.n || (HIDDEN.0..HIDDEN.1).contains(&(at % S.n)) {
            *score = f64::NEG_INFINITY;
        }
    }
    *bias = Array::floats(&bias.sizes, scores);
    given
}

/// Where a part begins and ends.
type Cut = (usize, usize);

/// The rows, or for the bias the columns, of the keys of a part.
fn places(name: &str, (from, to): Cut) -> Vec<usize> {
    match name {
        "k" => (from * S.e..to * S.e).collect(),
        "v" => (from * S.f..to * S.f).collect(),
        "bias" => (0..S.m).flat_map(|m| m * S.n + from..m * S.n + to).collect(),
        _ => (0..S.m * S.e).collect(),
    }
}

fn sizes_of((from, to): Cut) -> Vec<(&'static str, usize)> {
    named_sizes(Sizes { n: to - from, ..S })
}

/// The inputs of attention to a part.
fn given_to(cut: Cut) -> Named {
    let keys = cut.1 - cut.0;
    let part = |(name, all): (String, Array)| {
        let numbers: Vec<f64> = places(&name, cut).into_iter().map(|at| floats(&all)[at]).collect();
        let along = if name == "bias" { 4 } else { 2 };
        let mut sizes = all.sizes;
        if name != "q" {
            sizes[along] = keys;
        }
        (name, Array::floats(&sizes, numbers))
    };
    given().into_iter().map(part).collect()
}

/// The outputs of attention to a part.
fn attended(cut: Cut) -> Named {
    run(&model("attention_bias"), &given_to(cut), &sizes_of(cut), Mode::default())
}

/// The outputs of a part in the shape that a merge takes, or in the shape that attention gives.
fn seen_as(out: &Named, heads: &[usize]) -> Named {
    let shape = |name: &str| [heads, if name == "o" { &[S.m, S.f][..] } else { &[S.m] }].concat();
    out.iter().map(|(name, array)| (name.clone(), Array::floats(&shape(name), floats(array)))).collect()
}

/// Adds the gradients of one part to those of all keys.
fn add_gradients(all: &mut Named, cut: Cut, bars: &Named) {
    let bars = seen_as(bars, &[1, 1, 1]);
    let given = (&given_to(cut), &attended(cut), &bars);
    for (name, bar) in gradients(&model("attention_bias"), given, &sizes_of(cut), Mode::default()) {
        let sum = all.get_mut(&name).expect("a gradient");
        let mut numbers = floats(sum).to_vec();
        places(&name, cut).into_iter().zip(floats(&bar)).for_each(|(at, x)| numbers[at] += x);
        *sum = Array::floats(&sum.sizes, numbers);
    }
}

fn no_gradients() -> Named {
    given().into_iter().map(|(name, x)| (name, Array::floats(&x.sizes, vec![0.0; floats(&x).len()]))).collect()
}

/// A result of merging, and the parts that it was made of.
struct Tree {
    out: Named,
    of: Of,
}

enum Of {
    Part(Cut),
    Merged(Box<[Tree; 2]>),
}

const MERGED: [(&str, usize); 3] = [("B", 1), ("M", S.m), ("F", S.f)];

impl Tree {
    fn part(cut: Cut) -> Tree {
        Tree { out: seen_as(&attended(cut), &[1]), of: Of::Part(cut) }
    }

    fn merge(left: Tree, right: Tree) -> Tree {
        let both = [left, right];
        Tree { out: run(&model("merge"), &Tree::given(&both), &MERGED, Mode::default()), of: Of::Merged(both.into()) }
    }

    /// The inputs of `merge`.
    fn given(both: &[Tree; 2]) -> Named {
        let named = |(tree, mark): (&Tree, &str)| {
            tree.out.iter().map(|(name, x)| (format!("{name}{mark}"), x.clone())).collect::<Vec<_>>()
        };
        both.iter().zip(["1", "2"]).flat_map(named).collect()
    }

    /// Adds the gradients of all parts, for the cotangents of what they have been merged to.
    fn add_gradients(&self, all: &mut Named, bars: &Named) {
        match &self.of {
            Of::Part(cut) => add_gradients(all, *cut, bars),
            Of::Merged(both) => {
                let given = (&Tree::given(both), &self.out, bars);
                let own = gradients(&model("merge"), given, &MERGED, Mode::default());
                for (tree, mark) in both.iter().zip(["1", "2"]) {
                    let bar = |name: &str| (name.to_owned(), own[&format!("{name}{mark}")].clone());
                    tree.add_gradients(all, &Named::from([bar("o"), bar("lse")]));
                }
            }
        }
    }
}

/// Parts of all keys, uneven ones: from three on one is hidden from every query, from four on one is empty.
fn cuts(parts: usize, rng: &mut Rng) -> Vec<Cut> {
    let fixed = [HIDDEN.0, HIDDEN.1, HIDDEN.0];
    let inner = |i: usize| if parts > 2 && i < 3 { fixed[i] } else { rng.below(S.n + 1) };
    let mut inner: Vec<usize> = (0..parts - 1).map(inner).collect();
    inner.sort_unstable();
    let all = [vec![0], inner, vec![S.n]].concat();
    all.windows(2).map(|cut| (cut[0], cut[1])).collect()
}

/// One pass: outputs, their cotangents, gradients.
fn whole() -> (Named, Named, Named) {
    let out = seen_as(&attended((0, S.n)), &[1]);
    let (bars, mut all) = (cotangents(&out, 13), no_gradients());
    add_gradients(&mut all, (0, S.n), &bars);
    (out, bars, all)
}

fn same_all(what: &str, found: &Named, expected: &Named) {
    expected.iter().for_each(|(name, x)| same(&format!("{name} of {what}"), floats(&found[name]), floats(x)));
}

#[test]
fn any_tree_is_one_pass() {
    let ((out, bars, gradients), mut rng) = (whole(), Rng::new(9));
    for parts in (1..=7).flat_map(|parts| [parts; 2]) {
        let cuts = cuts(parts, &mut rng);
        let mut trees: Vec<Tree> = cuts.iter().copied().map(Tree::part).collect();
        while trees.len() > 1 {
            let at = rng.below(trees.len() - 1);
            let (left, right) = (trees.remove(at), trees.remove(at));
            trees.insert(at, Tree::merge(left, right));
        }
        let mut found = no_gradients();
        trees[0].add_gradients(&mut found, &bars);
        same_all(&format!("{cuts:?}"), &trees[0].out, &out);
        same_all(&format!("the gradients of {cuts:?}"), &found, &gradients);
    }
}

#[test]
fn all_at_once_are_one_pass() {
    let ((out, bars, expected), mut rng) = (whole(), Rng::new(5));
    for parts in 1..=7 {
        let cuts = cuts(parts, &mut rng);
        let all: Vec<Named> = cuts.iter().map(|cut| attended(*cut)).collect();
        let stack = |name: &str| all.iter().flat_map(|part| floats(&part[name]).to_vec()).collect::<Vec<_>>();
        let given = ["o", "lse"].map(|name| (name.to_owned(), Array::floats(&[0], stack(name)))).into_iter().collect();
        let (given, sizes) = (seen_as(&given, &[parts, 1]), [&[("P", parts)][..], &MERGED].concat());
        let found = run(&model("merge_parts"), &given, &sizes, Mode::default());
        let names = [("mean", "o"), ("total", "lse")];
        let what = format!("{cuts:?}");
        names
            .iter()
            .for_each(|(name, of)| same(&format!("{name} of {what}"), floats(&found[*name]), floats(&out[*of])));
        let bars = names.iter().map(|(name, of)| ((*name).to_owned(), bars[*of].clone())).collect();
        let own = gradients(&model("merge_parts"), (&given, &found, &bars), &sizes, Mode::default());
        let mut sums = no_gradients();
        for (p, cut) in cuts.iter().enumerate() {
            let part = |name: &str| {
                let numbers = floats(&own[name]);
                let len = numbers.len() / parts;
                (name.to_owned(), Array::floats(&[len], &numbers[p * len..][..len]))
            };
            add_gradients(&mut sums, *cut, &Named::from([part("o"), part("lse")]));
        }
        same_all(&format!("the gradients of {what}"), &sums, &expected);
    }
}

#[test]
fn nothing_merges_to_nothing() {
    let (nothing, hidden, something) = (Tree::part((2, 2)), Tree::part(HIDDEN), Tree::part((0, HIDDEN.0)).out);
    assert_eq!((floats(&nothing.out["o"]), floats(&nothing.out["lse"])), (&[0.0; 9][..], &[f64::NEG_INFINITY; 3][..]));
    assert_eq!(hidden.out, nothing.out);
    let part = || Tree::part((0, HIDDEN.0));
    assert_eq!(Tree::merge(part(), hidden).out, something);
    assert_eq!(Tree::merge(nothing, part()).out, something);
    let both = Tree::merge(Tree::part((2, 2)), Tree::part(HIDDEN));
    assert_eq!(both.out, Tree::part((2, 2)).out);
    let mut found = no_gradients();
    both.add_gradients(&mut found, &cotangents(&both.out, 7));
    same_all("the gradients of nothing", &found, &no_gradients());
}
