//! A small schedule from its parameters to its results: what a folder of `codegen/src/schedules` has, in one file.
//!
//! The schedule computes maps with a thread for every point. In the compiler its parts would stand in `parameters.rs`,
//! `candidates.rs`, `cost.rs`, `strategy.rs` and `mod.rs` of a folder, and a line of the list in `schedules/mod.rs` would be all
//! that makes plans weigh it: nothing here needs more of the compiler than other schedules do.

use std::fmt::{self, Display, Formatter};

use oplus_codegen::abi::{Role, Tensor, elem};
use oplus_codegen::block::args::Args;
use oplus_codegen::block::point::{Leaves, Point, Position};
use oplus_codegen::build::{Builder, zero};
use oplus_codegen::schedules::picture::{Carry, Picture};
use oplus_codegen::schedules::{Access, Constants, Cost, LowerError, Memory, Problem, Strategy};
use oplus_codegen::simulate::{Arg, Buffer, BufferId, Launch, Memory as Buffers, Options, Order, simulate};
use oplus_codegen::stage::{Bound, Kind, Placed, Refusal, Stage, cut};
use oplus_codegen::target::{Isa, Target, WARP};
use oplus_codegen::tile::{Kernel, Memory as Space, Operand, Special};
use oplus_codegen::verify::verify;
use oplus_dsl::ir::{Axis, AxisSet, Literal, Value};
use oplus_dsl::{Elem, Ty};

// ---- parameters.rs

/// A block of `32·warps` threads takes as many points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Points {
    warps: u32,
}

impl Display for Points {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "points(warps={})", self.warps)
    }
}

// ---- strategy.rs, with the candidates and the cost

impl Strategy for Points {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        if *kind == Kind::Map { Ok(()) } else { Err(Refusal::Scanned) }
    }

    fn candidates(_stage: &Stage, _isa: Isa, access: Access) -> Vec<Points> {
        if access == Access::Vectors { vec![] } else { vec![Points { warps: 8 }] }
    }

    fn name(&self) -> &'static str {
        "points"
    }

    fn vector(&self) -> u32 {
        1
    }

    fn isa(&self, _isa: Isa) -> Isa {
        Isa::Sm80
    }

    fn vector_axes(&self, _stage: &Stage) -> AxisSet {
        AxisSet::EMPTY
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        Points::takes(stage.kind()).map_err(|refusal| LowerError::Kind { schedule: "points", refusal })?;
        if self.warps == 0 || self.warps > WARP || stage.position_axis().is_some() {
            return Err(LowerError::Parameters { schedule: self.to_string() });
        }
        Ok(kernel(stage, self, symbol))
    }

    fn shared_bytes(&self, _stage: &Stage, _isa: Isa) -> u32 {
        0
    }

    fn threads(&self) -> u32 {
        self.warps * WARP
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        problem.rows().div_ceil(u64::from(self.threads()))
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        Cost { micros: memory.micros(), why: format!("{} blocks", self.blocks(problem)) }
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let points: i64 = stage.outer_axes().iter().map(|axis| sizes[axis.0 as usize]).product();
        format!("{points} points; a thread takes one")
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let (along, length) = (stage.outer_axes().iter().last(), u64::from(self.threads()));
        Picture { along, within: vec![], length, across: 1, tile: None, carry: Carry::None }
    }
}

// ---- mod.rs: the emission

fn kernel(stage: &Stage, schedule: &Points, symbol: &str) -> Kernel {
    let mut b = Builder::new(symbol, schedule.threads());
    let args = Args::declare(&mut b, stage, schedule.abi(stage));
    let [block, thread] = [Special::Block, Special::Thread].map(|special| {
        let number = b.special(special);
        b.convert(Ty::I64, number)
    });
    let first = b.mul(block, Operand::i64(i64::from(schedule.threads())));
    let number = b.add(first, thread);
    let points = args.rows(&mut b, stage.outer_axes());
    let exists = b.lt(number, points);
    b.if_(exists, |b| {
        let indices = args.row_indices(b, number);
        let (mut point, mut here) = (Point::new(&stage.program, None), Here { stage, args: &args, indices: &indices });
        for (k, output) in (0..).zip(&stage.program.outputs) {
            let value = point.here(b, &mut here, output.value);
            let tensor = Tensor::Output(k);
            let index = args.offset(b, tensor, &indices);
            b.store(Space::Global(args.pointer(tensor)), index, &[value], None);
        }
    });
    b.finish()
}

/// Where the values at a thread's point come from.
struct Here<'k> {
    stage: &'k Stage,
    args: &'k Args,
    indices: &'k [(Axis, Operand)],
}

impl Leaves for Here<'_> {
    fn param(&mut self, b: &mut Builder, param: u32, _: Position) -> Operand {
        let tensor = Tensor::Param(param);
        let index = self.args.offset(b, tensor, self.indices);
        let nothing = zero(elem(self.stage, tensor).value());
        b.load(Space::Global(self.args.pointer(tensor)), index, 1, None, nothing)[0]
    }

    fn state(&mut self, _: &mut Builder, _: Value, _: u32, _: Position) -> Operand {
        unreachable!("a map has no states")
    }

    fn index(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.indices.iter().find(|(own, _)| *own == axis).map_or(Operand::i64(0), |(_, index)| *index)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.args.size(axis)
    }
}

// ---- its test: the simulator, in several orders

/// y[b, l] = a[b]·x[b, l] + l
const PROGRAM: &str = "program scaled { axes B, L; param a: f32[B]; param x: f32[B, L];
    %0: f32[B] = param a; %1: f32[B, L] = param x; %2: f32[B, L] = %0 * %1; %3: i64[L] = index(L);
    %4: f32[L] = convert(f32, %3); %5: f32[B, L] = %2 + %4; output y: f32[B, L] = %5; }";

fn stage() -> Stage {
    let program = oplus_dsl::parse::parse(PROGRAM).expect("a program");
    cut(&program).expect("cuts").stages.remove(0)
}

fn run(stage: &Stage, schedule: Points, [rows, length]: [usize; 2], order: Order) -> Vec<f64> {
    let kernel = schedule.lower(stage, Isa::Sm80, "points").expect("lowers");
    assert_eq!(verify(&kernel, &Target::A100), Ok(()));
    let mut memory = Buffers::new();
    let floats = |n: usize| Buffer::of(Elem::F32, (0..n).map(|k| Literal::Float(k as f64 + 1.0)));
    let [a, x] = [rows, rows * length].map(|n| memory.add(floats(n)));
    let y: BufferId = memory.add(Buffer::unwritten(Elem::F32, rows * length));
    let sizes = vec![rows as i64, length as i64];
    let placed = |strides: &[i64]| Placed { strides: strides.to_vec(), align: 4 };
    let tensors = vec![placed(&[1]), placed(&[length as i64, 1]), placed(&[length as i64, 1])];
    let bound = Bound { sizes, tensors };
    let problem = Problem { stage, bound: &bound, target: &Target::A100, constants: Constants::committed() };
    let arg = |role: Role| match role {
        Role::Pointer(Tensor::Param(k)) => Arg::from([a, x][k as usize]),
        Role::Pointer(Tensor::Output(_)) => Arg::from(y),
        Role::Size(axis) => Arg::Scalar(Literal::Int(problem.size(axis))),
        Role::Stride(tensor, axis) => Arg::Scalar(Literal::Int(bound.stride(stage, tensor, axis).unwrap_or(0))),
        other => panic!("{other:?} is not asked for"),
    };
    let args = schedule.abi(stage).into_iter().map(|slot| arg(slot.role)).collect();
    let launch = Launch { grid: [schedule.blocks(&problem) as u32, 1], args };
    simulate(&kernel, &launch, &mut memory, &Options { order, ..Options::default() }).expect("no fault");
    (0..rows * length).map(|k| memory.buffer(y).value(k).expect("written").as_f64()).collect()
}

#[test]
fn a_thread_for_every_point() {
    let stage = stage();
    for (rows, length) in [(1, 1), (3, 31), (2, 32), (5, 33), (7, 101)] {
        let point = |k: usize| ((k / length) as f64 + 1.0) * (k as f64 + 1.0) + (k % length) as f64;
        let expected: Vec<f64> = (0..rows * length).map(point).collect();
        for (warps, order) in [(1, Order::Ascending), (2, Order::Descending), (8, Order::Random(3))] {
            assert_eq!(run(&stage, Points { warps }, [rows, length], order), expected, "{rows} × {length}");
        }
    }
}

#[test]
fn it_says_what_it_does_not_take() {
    let stage = stage();
    assert_eq!(Points::candidates(&stage, Isa::Sm80, Access::Singles), [Points { warps: 8 }]);
    let none = Points { warps: 0 }.lower(&stage, Isa::Sm80, "points");
    assert_eq!(none.unwrap_err().to_string(), "`points(warps=0)` has numbers that no kernel can have");
    assert_eq!(Points::takes(&Kind::Scan), Err(Refusal::Scanned));
    assert_eq!(Points { warps: 2 }.words(&stage, &[3, 5]), "15 points; a thread takes one");
}
