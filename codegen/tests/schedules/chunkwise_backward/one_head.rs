//! Heads with keys and queries of their own, whose third sweep is by warps, two blocks to a multiprocessor.

use oplus_codegen::schedules::Sweep;
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;

use super::{check_on, gradient_of};
use crate::device::Placement;

const ELEMS: [Elem; 2] = [Elem::Bf16, Elem::F16];
const CONTIGUOUS: (Placement, usize) = (Placement::Contiguous, 0);

#[test]
fn two_blocks_share_a_multiprocessor() {
    for (elem, name) in ELEMS.into_iter().flat_map(|elem| ["retention", "linear_attention"].map(|name| (elem, name))) {
        let program = gradient_of((name, elem), &[], &["o", "s_last"]);
        for (t, k, v) in [(1, 64, 64), (64, 64, 64), (65, 56, 48), (130, 32, 64)] {
            let sizes = [("B", 1), ("H", 6), ("T", t), ("K", k), ("V", v)];
            let order = Order::Random((t + k) as u64);
            let sweeps = check_on(&Target::H200, (&program, &sizes), CONTIGUOUS, order, |_, _, own| own);
            let last = sweeps.last().expect("a third sweep");
            let has_registers = name == "retention" && (elem == Elem::Bf16 || k > 32);
            assert_eq!((last.sweep, last.blocks == 2), (Sweep::Gradients, has_registers), "{name} {elem} {sizes:?}");
            assert!(last.copiers > 0 && !last.warpgroups, "{name} {elem} {sizes:?}");
        }
    }
}

/// States and their cotangents that f16 has no room for, and small ones, each saved times a power of two.
#[test]
fn states_out_of_the_range_of_f16() {
    let program = gradient_of(("retention", Elem::F16), &["s0"], &["o"]);
    for (case, (factors, t, k)) in [
        ([("v", 6e4), ("k", 1.0), ("q", 1.0), ("o.bar", 1e-3)], 130, 64),
        ([("v", 3e4), ("k", 1e2), ("q", 1.0), ("o.bar", 1e-4)], 65, 128),
        ([("v", 1e-2), ("k", 1e-2), ("q", 1e3), ("o.bar", 1.0)], 130, 64),
        ([("v", 1e-3), ("k", 5e-3), ("q", 1e3), ("o.bar", 1e2)], 129, 48),
        ([("v", 1e3), ("k", 1e-2), ("q", 1e-2), ("o.bar", 1.0)], 67, 32),
    ]
    .into_iter()
    .enumerate()
    {
        let sizes = [("B", 1), ("H", 2), ("T", t), ("K", k), ("V", 64)];
        let scaled = |name: &str, _: usize, own: f64| {
            own * factors.iter().find(|(known, _)| *known == name).map_or(1.0, |(_, factor)| *factor)
        };
        let order = [Order::Ascending, Order::Descending, Order::Random(case as u64)][case % 3];
        let sweeps = check_on(&Target::H200, (&program, &sizes), CONTIGUOUS, order, scaled);
        assert!(sweeps.iter().all(|sweep| sweep.copiers > 0 && !sweep.warpgroups), "{factors:?}");
    }
}
