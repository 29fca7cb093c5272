//! Every schedule that a plan may take × every element type of parameters × aligned and not × both directions: kernels are
//! lowered and keep the rules of the tile IR, and give on the simulated device what the interpreter gives, at awkward lengths.
//!
//! Beside the values that are scanned every program reads flags and tensors of another element type, each at both neighbours
//! as well, so that accesses of 1 to 8 bytes meet in one kernel. All pairs of element types are lowered; of the runs there is
//! one for each schedule, type, direction and placement, and lengths and other types go round in turn.

use std::collections::BTreeSet;

use oplus_codegen::plan::variants;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::{lower_fast_tier, lower_sound};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{Stage, cut};
use oplus_codegen::target::Target;
use oplus_codegen::verify::verify;
use oplus_dsl::build::{Builder, Direction};
use oplus_dsl::ir::{Axis, Binary, Literal, Operator, Program, Value};
use oplus_dsl::testing::operator;
use oplus_dsl::typing::TypeError;
use oplus_dsl::{Elem, Ty};

use crate::device::Placement;
use crate::oracle::Case;

/// The element types that parameters may have.
const ELEMS: [Elem; 9] =
    [Elem::Bool, Elem::I32, Elem::U32, Elem::I64, Elem::U64, Elem::F16, Elem::Bf16, Elem::F32, Elem::F64];
const TARGETS: [Target; 2] = [Target::H200, Target::A100];
const PLACEMENTS: [Placement; 3] = [Placement::Padded, Placement::Misaligned, Placement::Strided];

/// The uses that a program makes of L.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Along {
    /// No scan.
    Nothing,
    /// Scans a contiguous axis.
    Rows { reverse: bool },
    /// Scans an axis that is not contiguous.
    Columns { reverse: bool },
}

impl Along {
    const ALL: [Along; 5] = [
        Along::Nothing,
        Along::Rows { reverse: false },
        Along::Rows { reverse: true },
        Along::Columns { reverse: false },
        Along::Columns { reverse: true },
    ];

    /// Sizes of B and L in the order of the axes.
    fn sizes(self, len: usize) -> Vec<usize> {
        if matches!(self, Along::Columns { .. }) { vec![len, 12] } else { vec![2, len] }
    }
}

/// Sums, or of flags whether there was any, that begin again where `reset` is true.
fn resetting(ty: Ty) -> Operator {
    let fields = [("reset", Ty::Bool, Literal::Bool(false)), ("s", ty, Literal::zero(ty))];
    operator("Resetting", fields, |[lr, ls], [rr, rs]| {
        let both = if ty == Ty::Bool { ls | rs } else { ls + rs };
        [lr | rr, rr.select(rs, both)]
    })
}

/// x and its neighbours scanned, with flags and a tensor of another element type beside it.
fn program(elem: Elem, other: Elem, along: Along) -> Program {
    let build = |b: &mut Builder| -> Result<(), TypeError> {
        let names = if matches!(along, Along::Columns { .. }) { ["L", "B"] } else { ["B", "L"] };
        let all = [b.axis(names[0])?, b.axis(names[1])?];
        let (time, batch) = if names[0] == "L" { (all[0], all[1]) } else { (all[1], all[0]) };
        let x = b.param("x", &all, elem, None)?;
        let flag = b.param("flag", &all, Elem::Bool, None)?;
        let beside = b.param("beside", &all, other, None)?;
        let [flag, beside] = [near(b, time, flag)?, near(b, time, beside)?];
        b.output("beside_near", &all, other, beside)?;
        let near = near(b, time, x)?;
        let reverse = match along {
            Along::Nothing => {
                let chosen = b.select(flag, x, near)?;
                return b.output("y", &all, elem, chosen);
            }
            Along::Rows { reverse } | Along::Columns { reverse } => reverse,
        };
        let never = b.constant(Ty::Bool, Literal::Bool(false))?;
        let init = b.param("init", &[batch], elem, None)?;
        let operator = b.operator(resetting(elem.value()));
        let after = b.scan(time, operator, &[flag, near], &[never, init], Direction { reverse, exclusive: false })?;
        let before = b.scan(time, operator, &[flag, near], &[never, init], Direction { reverse, exclusive: true })?;
        let last = if reverse { b.first(time, after[1], init)? } else { b.last(time, after[1], init)? };
        b.output("after", &all, elem, after[1])?;
        b.output("before", &all, elem, before[1])?;
        b.output("reset", &all, Elem::Bool, after[0])?;
        b.output("final", &[batch], elem, last)
    };
    let mut b = Builder::new("elements");
    build(&mut b).expect("is well typed");
    b.finish()
}

/// The sum of both neighbours, or of flags whether one is true.
fn near(b: &mut Builder, time: Axis, value: Value) -> Result<Value, TypeError> {
    let ty = b.ty(value)?;
    let nothing = b.constant(ty, Literal::zero(ty))?;
    let [earlier, later] = [b.shift(time, 1, value, nothing)?, b.shift(time, -1, value, nothing)?];
    b.binary(if ty == Ty::Bool { Binary::Or } else { Binary::Add }, earlier, later)
}

/// The only stage of a program, and the schedules of its axes as they are.
fn schedules(program: &Program, target: &Target) -> (Stage, Vec<Schedule>) {
    let mut stages = cut(program).expect("cuts").stages;
    let stage = stages.pop().expect("a stage");
    assert!(stages.is_empty(), "{program}");
    let of_stage = variants(&stage, target.isa).into_iter().filter(|(own, _)| *own == stage);
    let schedules = of_stage.map(|(_, schedule)| schedule).collect();
    (stage, schedules)
}

#[test]
fn kernels_of_all_pairs_of_element_types_are_valid() {
    let pairs = ELEMS.iter().flat_map(|elem| ELEMS.iter().map(move |other| (*elem, *other)));
    let mut faults = vec![];
    for (elem, other) in pairs {
        for (along, target) in Along::ALL.into_iter().flat_map(|along| TARGETS.map(|target| (along, target))) {
            let program = program(elem, other, along);
            let (stage, schedules) = schedules(&program, &target);
            let refused = schedules.iter().filter_map(|s| Some((s, fault(&stage, s, &target)?)));
            faults.extend(refused.map(|(s, fault)| format!("{elem} beside {other}, {along:?}, {s}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{} kernels:\n{}", faults.len(), faults.join("\n"));
}

/// The faults of a stage's kernel, or of the shorter one that runs until it is compiled.
fn fault(stage: &Stage, schedule: &Schedule, target: &Target) -> Option<String> {
    let isa = schedule.isa(target.isa);
    if let Err(fault) = lower_sound(stage, schedule, target) {
        return Some(fault.to_string());
    }
    let short = lower_fast_tier(stage, schedule, isa).expect("lowers")?;
    let faults = verify(&short, &Target { isa, ..*target }).err()?;
    Some(format!("the short form: {}", faults[0]))
}

/// Elements of time that a block, or a thread where blocks have none, takes at once.
fn tile(schedule: &Schedule) -> usize {
    let tile = match schedule {
        Schedule::Map(s) => s.tile(),
        Schedule::Rows(s) => s.tile(),
        Schedule::LookBack(s) => s.tile(),
        Schedule::Columns(s) => s.tile_rows(),
        _ => 1,
    };
    tile as usize
}

/// An awkward length: nothing, one, two, around a tile, a prime.
fn length(number: usize, schedule: &Schedule) -> usize {
    let tile = tile(schedule);
    [tile + 1, 1, tile - 1, 257, 2, tile, 0][number % 7]
}

/// The case of a run: kind of schedule, number of the length, element type, other element type, direction, placement.
type Run = (&'static str, usize, Elem, Elem, Along, usize);

/// Runs the schedules of a program in one direction, each where it fits, every one at another length.
fn run_all(elem: usize, along: usize, done: &mut BTreeSet<Run>) {
    let (mut turn, along) = (elem + along, Along::ALL[along]);
    for (at, target) in TARGETS.iter().enumerate() {
        let count = schedules(&program(ELEMS[elem], ELEMS[0], along), target).1.len();
        for number in 0..count {
            for (p, placement) in PLACEMENTS.into_iter().enumerate() {
                turn += 1;
                let other = ELEMS[(turn + at) % ELEMS.len()];
                let program = program(ELEMS[elem], other, along);
                let Some(schedule) = schedules(&program, target).1.get(number).copied() else { continue };
                let sizes = along.sizes(length(turn, &schedule));
                let case = Case { program: &program, sizes: &sizes, placement, order: Order::Random(turn as u64) };
                if case.check_if_it_fits(schedule, target) {
                    done.insert((schedule.name(), turn % 7, ELEMS[elem], other, along, p));
                }
            }
        }
    }
}

#[test]
fn kernels_of_every_element_type_compute_what_the_program_means() {
    let mut done = BTreeSet::new();
    for elem in 0..ELEMS.len() {
        (0..Along::ALL.len()).for_each(|along| run_all(elem, along, &mut done));
    }
    let pairs = |of: fn(&Run) -> String| done.iter().map(of).collect::<BTreeSet<String>>().len();
    // Look-back has no empty axis, and maps neither teams nor a ring; all else meets.
    assert_eq!(pairs(|r| format!("{} {}", r.0, r.2)), 4 * 9, "schedule and element type");
    assert_eq!(pairs(|r| format!("{} {}", r.0, r.3)), 4 * 9, "schedule and other element type");
    assert_eq!(pairs(|r| format!("{} {:?}", r.2, r.4)), 9 * 5, "element type and direction");
    assert_eq!(pairs(|r| format!("{} {}", r.2, r.5)), 9 * 3, "element type and placement");
    assert_eq!(pairs(|r| format!("{} {}", r.0, r.5)), 4 * 3, "schedule and placement");
    assert!(pairs(|r| format!("{} {}", r.0, r.1)) >= 4 * 6, "schedule and length");
    assert!(pairs(|r| format!("{} {}", r.2, r.1)) >= 9 * 6, "element type and length");
}
