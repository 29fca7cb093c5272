//! Exchanges, predicted and counted.

use std::thread;

use oplus::dist::{Exchanges, Group, Link, Traffic, all_gather, ring};
use oplus::kernels::{AffineCotangents, affine};
use oplus::models::ssd;
use oplus::{Shapes, Tensor};

fn exchanges(ranks: usize) -> [Exchanges; 2] {
    let shapes = Shapes::new().axis("B", 3).axis("T", 100).sharded("T", ranks);
    let explanation = affine::explain(&shapes).unwrap();
    [explanation.forward.exchanges.unwrap(), explanation.gradient.unwrap().exchanges.unwrap()]
}

#[test]
fn a_call_sends_what_its_explanation_says() {
    let traffic = thread::scope(|scope| {
        let ranks: Vec<_> = Group::threads(2)
            .into_iter()
            .map(|group| {
                scope.spawn(move || {
                    let x = Tensor::from_vec(vec![0.5_f32; 300], &[3, 100]).unwrap();
                    let h0 = Some(Tensor::from_vec(vec![0.5_f32; 3], &[3]).unwrap());
                    let inputs = oplus::kernels::Affine { a: x.clone(), b: x.clone(), h0: h0.clone() };
                    let out = affine::sharded(&group, "T")(inputs).unwrap();
                    let forward = group.traffic();
                    out.backward(AffineCotangents { h: Some(x), h_last: h0 }).unwrap();
                    (forward, group.traffic())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    let [forward, gradient] = exchanges(2);
    // Each program also has one exchange of 40 bytes in which the ranks compare what they are about to do.
    let sent = Traffic { exchanges: forward.messages.len() as u64 + 1, bytes: forward.bytes() + 40 };
    let all = Traffic {
        exchanges: sent.exchanges + gradient.messages.len() as u64 + 1,
        bytes: sent.bytes + gradient.bytes() + 40,
    };
    assert_eq!(traffic, [(sent, all), (sent, all)]);
}

#[test]
fn an_explanation_prints_what_is_exchanged_and_when() {
    let [forward, gradient] = exchanges(8);
    insta::assert_snapshot!("exchanges_of_affine", format!("{forward}\ngradient\n\n{gradient}"));
}

#[test]
fn only_states_are_exchanged_where_they_are_contracted() {
    let sizes = [("B", 1), ("T", 64), ("G", 1), ("H", 2), ("P", 8), ("N", 4)];
    let shapes = sizes.iter().fold(Shapes::new(), |shapes, (axis, size)| shapes.axis(axis, *size)).sharded("T", 4);
    let exchanges = ssd::explain(&shapes).unwrap().forward.exchanges.unwrap();
    assert_eq!(exchanges.phases, 2);
    // The decay of each head and its state, in f32, whatever the number of times.
    assert_eq!(exchanges.bytes(), 4 * (2 + 2 * 8 * 4));
}

#[test]
fn the_simulator_counts_steps_and_bytes() {
    let link = Link { bytes_per_micro: 10.0, latency_micros: 3.0 };
    for ranks in [1, 2, 8, 64] {
        let steps = ranks as u64 - 1;
        for cost in [all_gather(ranks, 40, link), ring(ranks, 40, link)] {
            assert_eq!((cost.steps, cost.bytes, cost.micros), (steps, steps * 40, steps as f64 * 7.0));
        }
    }
    let [forward, _] = exchanges(8);
    assert_eq!(forward.cost(link).bytes, 7 * forward.bytes());
}

/// The decays of a gradient are those of the time after; what the last rank of two would send for that is in its total.
#[test]
fn decays_of_gradients_are_sent_with_the_totals() {
    for name in ["ssd", "selective_scan", "monoid_attention", "gated_linear_attention"] {
        let models = oplus_front::model_programs();
        let model = models.into_iter().find(|model| model.name == name).expect("a model");
        let divided = oplus_dsl::shard::shard(&oplus_dsl::adjoint::adjoint(&model).unwrap(), "T").unwrap();
        let messages: Vec<&String> = divided.phases.iter().flat_map(|phase| &phase.messages).collect();
        assert!(messages.iter().any(|message| message.starts_with("shard.total")), "{name}: {messages:?}");
        assert!(messages.iter().all(|message| !message.starts_with("shard.border")), "{name}: {messages:?}");
        assert!(divided.phases.len() <= 3, "{name} has {} phases", divided.phases.len());
    }
}
