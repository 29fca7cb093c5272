//! The functions that `scan!` declares, and the bits of their results.

use std::thread;

use oplus::dist::Group;
use oplus::models::{SelectiveScan, SelectiveScanCotangents, selective_scan};
use oplus::{Error, Tensor};
use oplus_dsl::rng::Rng;

fn random(shape: &[usize], rng: &mut Rng) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_vec((0..n).map(|_| rng.between(-1.0, 1.0) as f32).collect(), shape).unwrap()
}

/// Output, last state, and the gradients of u and a, of each rank.
fn run(parts: &[usize]) -> Vec<Vec<Vec<f32>>> {
    let (mut rng, t) = (Rng::new(3), parts.iter().sum());
    let (b, g, d, n) = (2, 1, 3, 4);
    let whole = SelectiveScan {
        u: random(&[b, g, d, t], &mut rng),
        delta: random(&[b, g, d, t], &mut rng),
        a: random(&[g, d, n], &mut rng),
        b: random(&[b, g, n, t], &mut rng),
        c: random(&[b, g, n, t], &mut rng),
        skip: Some(random(&[g, d], &mut rng)),
        delta_bias: None,
        h0: Some(random(&[b, g, d, n], &mut rng)),
    };
    let y_bar = random(&[b, g, d, t], &mut rng);
    let rank = |group: Group| -> Result<Vec<Vec<f32>>, Error> {
        let start: usize = parts[..group.rank()].iter().sum();
        let part = |x: &Tensor| x.slice(3, start..start + parts[group.rank()]);
        let inputs = SelectiveScan {
            u: part(&whole.u)?,
            delta: part(&whole.delta)?,
            b: part(&whole.b)?,
            c: part(&whole.c)?,
            ..whole.clone()
        };
        let out = selective_scan::sharded(&group, "T")(inputs)?;
        let gradients = out.backward(SelectiveScanCotangents { y: Some(part(&y_bar)?), h_last: None })?;
        [out.y, out.h_last, gradients.u, gradients.a].iter().map(Tensor::to_vec).collect()
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = Group::threads(parts.len()).into_iter().map(|group| scope.spawn(|| rank(group))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
    })
}

#[test]
fn the_bits_are_the_same_in_every_run() {
    let first = run(&[40, 1, 23]);
    (0..8).for_each(|_| assert_eq!(run(&[40, 1, 23]), first));
}

#[test]
fn what_all_ranks_share_is_equal_on_every_rank() {
    let ranks = run(&[5, 30, 2]);
    for rank in &ranks {
        assert_eq!((&rank[1], &rank[3]), (&ranks[0][1], &ranks[0][3]));
    }
}
