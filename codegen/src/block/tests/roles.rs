//! Blocks of two roles: the warps of each do its work, and only that.

use super::{Y, builder, index, run, thread};
use crate::block::roles::divide;
use crate::build::{Builder, f32};
use crate::tile::{Operand, Stmt};
use oplus_dsl::Elem;

#[test]
fn the_first_warps_multiply_and_the_others_copy() {
    for (warps, multiplying) in [(2, 1), (3, 1), (4, 3)] {
        let mut b = builder(32 * warps, Elem::F32);
        let own = thread(&mut b);
        let multiplies = b.lt(own, Operand::i32(32 * multiplying));
        let write = |role: f64| {
            move |b: &mut Builder| {
                let at = index(b, own, 1, 0);
                b.store(Y, at, &[f32(role)], None);
            }
        };
        divide(&mut b, multiplies, None, write(1.0), write(2.0));
        let found = run(&b.finish(), &[0.0], 32 * warps as usize);
        let role = |thread: i32| if thread < 32 * multiplying { 1.0 } else { 2.0 };
        assert_eq!(found, (0..32 * warps as i32).map(role).collect::<Vec<f64>>());
    }
}

#[test]
fn each_role_has_its_registers_before_its_work() {
    let mut b = builder(256, Elem::F32);
    let own = thread(&mut b);
    let multiplies = b.lt(own, 128);
    divide(&mut b, multiplies, Some((232, 40)), |b| b.push(Stmt::SyncWarp), Builder::barrier);
    let body = b.finish().body;
    let Some(Stmt::If { then, otherwise, .. }) = body.last() else { panic!("{body:?}") };
    assert_eq!(then[..], [Stmt::SetMaxRegisters { count: 232, more: true }, Stmt::SyncWarp]);
    assert!(matches!(otherwise[..], [Stmt::SetMaxRegisters { count: 40, more: false }, _]), "{otherwise:?}");
}
