//! Blocks of columns that have several points of the other outer axes, because the axis of the columns is narrow.

use oplus_codegen::schedules::{Columns, Form, Schedule};
use oplus_codegen::simulate::Order;
use oplus_dsl::ir::Program;

use crate::device::Placement;
use crate::oracle::{Case, program};

/// Sums and running sums along the middle axis.
fn sums() -> [Program; 2] {
    let text = "program sums { axes B, L, P; param x: f32[B, L, P];
    operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); }
    %0: f32[B, L, P] = param x; RESULT }";
    let whole = "%1: tuple[B, P] = reduce(L, Sum, (%0)); %2: f32[B, P] = %1.s; output y: f32[B, P] = %2;";
    let running = "%1: tuple[B, L, P] = scan(L, Sum, (%0)); %2: f32[B, L, P] = %1.s; output y: f32[B, L, P] = %2;";
    [whole, running].map(|result| program(&text.replace("RESULT", result)))
}

#[test]
fn every_point_has_its_own_columns() {
    let walk = Columns {
        lane: 2,
        form: Form::Walk,
        warps: 2,
        reduce_warps: 0,
        lanes: 32,
        vector: 2,
        steps: 4,
        stages: 1,
        group: 0,
        window: 0,
        points: 4,
    };
    for program in sums() {
        for (points, most) in [(2, 64), (4, 32), (16, 8)] {
            for sizes in
                [[1, 1, most], [points as usize - 1, 3, 2], [points as usize, 2, most], [37, 5, most - 2], [3, 1, 4]]
            {
                let schedule = Schedule::Columns(Columns { points, ..walk });
                for placement in [Placement::Contiguous, Placement::Padded] {
                    Case { program: &program, sizes: &sizes, placement, order: Order::Random(7) }.check(schedule);
                }
            }
        }
    }
}
