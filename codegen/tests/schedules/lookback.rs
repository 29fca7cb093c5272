//! The look-back schedule: lengths around a tile, both loaders, directions, neighbours, final states, element types.

use oplus_codegen::schedules::{Fold, Loader, LookBack, Schedule};
use oplus_codegen::simulate::Order;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::operators;
use oplus_dsl::{Elem, Ty};

use crate::device::Placement;
use crate::oracle::{Case, program};
use crate::rows::scan;

/// Tiles of 64·vector elements, or of 128·vector.
fn schedule(loader: Loader, vector: u32, vectors: u32) -> LookBack {
    LookBack { scan_warps: 2, reduce_warps: 1, vector, vectors, stages: 3, window: 2, fold: Fold::Blocks, loader }
}

fn check(program: &Program, sizes: &[usize], placement: Placement, schedule: LookBack, seed: u64) {
    Case { program, sizes, placement, order: Order::Random(seed) }.check(Schedule::LookBack(schedule));
}

/// The gradient of h[t] = a[t]·h[t−1] + b[t]: a scan from the end that reads a[t+1] and h[t−1].
const BACKWARD: &str = "program backward { axes B, L; param a: f32[B, L]; param h: f32[B, L]; param g: f32[B, L];
    operator Affine(a: f32, b: f32) { identity (1.0, 0.0);
        %0: f32 = input l.a; %1: f32 = input l.b; %2: f32 = input r.a; %3: f32 = input r.b;
        %4: f32 = %0 * %2; %5: f32 = %2 * %1; %6: f32 = %5 + %3; combine (%4, %6); }
    %0: f32[B, L] = param a; %1: f32[B, L] = param h; %2: f32[B, L] = param g; %3: f32 = const 0.0;
    %4: f32[B, L] = shift(L, -1, %0, %3); %5: tuple[B, L] = scan(L, Affine, (%4, %2), reverse);
    %6: f32[B, L] = %5.b; %7: f32[B, L] = shift(L, 1, %1, %3); %8: f32[B, L] = %6 * %7;
    output a_bar: f32[B, L] = %8; output b_bar: f32[B, L] = %6; }";

#[test]
fn lengths_around_a_tile() {
    let programs = [scan(&operators::affine(Ty::F32), false, None), scan(&operators::affine(Ty::F32), true, None)];
    let programs = [&programs[..], &[program(BACKWARD)]].concat();
    for (seed, len) in [1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 259, 260, 263, 509, 512, 513, 1021].into_iter().enumerate()
    {
        for program in &programs {
            for loader in [Loader::Bulk, Loader::Registers] {
                check(program, &[2, len], Placement::Padded, schedule(loader, 4, 1), seed as u64);
            }
        }
    }
}

#[test]
fn accesses_of_every_width() {
    let affine = operators::affine(Ty::F32);
    for (elem, vector) in [(Elem::F32, 1), (Elem::F32, 2), (Elem::Bf16, 4), (Elem::Bf16, 8), (Elem::F16, 8)] {
        for reverse in [false, true] {
            for loader in [Loader::Bulk, Loader::Registers] {
                if vector > 1 || loader == Loader::Registers {
                    check(
                        &scan(&affine, reverse, Some(elem)),
                        &[3, 1021],
                        Placement::Padded,
                        schedule(loader, vector, 2),
                        3,
                    );
                }
            }
        }
    }
    let wide = scan(&operators::affine(Ty::F64), true, None);
    check(&wide, &[3, 301], Placement::Padded, schedule(Loader::Bulk, 2, 2), 4);
}

#[test]
fn accesses_of_single_elements_take_any_layout() {
    for program in [scan(&operators::affine(Ty::F32), true, None), program(BACKWARD)] {
        for placement in [Placement::Misaligned, Placement::Strided] {
            check(&program, &[3, 300], placement, schedule(Loader::Registers, 1, 2), 5);
        }
    }
}

#[test]
fn both_folds_of_many_tiles() {
    let program = scan(&operators::log_decay(Ty::F32), false, None);
    for fold in [Fold::Strict, Fold::Blocks] {
        let schedule = LookBack { fold, ..schedule(Loader::Bulk, 4, 1) };
        check(&program, &[2, 70 * 256 + 9], Placement::Padded, schedule, 6);
    }
}

#[test]
fn adjoints_of_scans_with_states() {
    let forward = scan(&operators::affine(Ty::F32), false, None);
    let backward = adjoint(&forward).expect("is differentiable");
    check(&backward, &[2, 524], Placement::Padded, schedule(Loader::Bulk, 4, 2), 7);
}

#[test]
fn kernels_that_stand_in_compute_the_same_bits() {
    let affine = operators::affine(Ty::F32);
    let programs = [scan(&affine, false, None), scan(&affine, true, Some(Elem::Bf16)), program(BACKWARD)];
    let sizes = [1, 3, 256, 259, 1021, 2048, 2051, 5 * 2048 + 7];
    for (seed, len) in (20..).zip(sizes) {
        for program in &programs {
            let forms = [(Loader::Bulk, 4, 8, Placement::Padded), (Loader::Registers, 1, 4, Placement::Misaligned)];
            for (loader, vector, vectors, placement) in forms {
                let case = Case { program, sizes: &[2, len], placement, order: Order::Random(seed) };
                case.check_fast_tier(Schedule::LookBack(schedule(loader, vector, vectors)));
            }
        }
    }
    let strict = LookBack { fold: Fold::Strict, window: 3, ..schedule(Loader::Bulk, 4, 2) };
    for program in &programs {
        let case = Case { program, sizes: &[2, 70 * 512 + 9], placement: Placement::Padded, order: Order::Random(3) };
        case.check_fast_tier(Schedule::LookBack(strict));
    }
}

#[test]
fn launches_that_follow_each_other_share_a_region_also_where_tags_wrap_around() {
    let program = scan(&operators::affine(Ty::F32), false, None);
    for tag in [1, u32::MAX - 1] {
        for seed in 0..3 {
            let sizes = [2, 9 * 256 + 3];
            let case =
                Case { program: &program, sizes: &sizes, placement: Placement::Padded, order: Order::Random(seed) };
            case.check_shared_region(Schedule::LookBack(schedule(Loader::Bulk, 4, 1)), tag);
        }
    }
}
