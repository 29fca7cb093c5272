//! Indices of rows and offsets of tensors from the arguments of a launch.

use crate::abi::{Extras, Role, Slot, Tensor, abi};
use crate::block::args::Args;
use crate::build::Builder;
use crate::simulate::{Arg, Buffer, Launch, Memory, Options, simulate};
use crate::stage::{Stage, cut};
use crate::tile::{Memory as Place, Operand, ParamKind, Special};
use oplus_dsl::ir::{Axis, Literal};
use oplus_dsl::parse::parse;
use oplus_dsl::{Elem, Ty};

/// Running sums over L of x[b, c, l] · w[b, c − 1]: w is read displaced.
fn stage() -> Stage {
    let text = "program p { axes B, C, L; param x: f32[B, C, L]; param w: f32[B, C];
        operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); }
        %0: f32[B, C, L] = param x; %1: f32[B, C] = param w; %2: f32 = const 0.0; %3: f32[B, C] = shift(C, 1, %1, %2);
        %4: f32[B, C, L] = %0 * %3; %5: tuple[B, C, L] = scan(L, Sum, (%4)); %6: f32[B, C, L] = %5.s;
        output y: f32[B, C, L] = %6; }";
    let program = parse(text).unwrap_or_else(|e| panic!("{e}"));
    cut(&program).expect("cuts").stages.remove(0)
}

/// The parameters of a kernel that takes nothing but tensors and sizes.
fn slots(stage: &Stage) -> Vec<Slot> {
    abi(stage, &Extras::default())
}

/// The sizes of B, C and L.
const SIZES: [i64; 3] = [3, 5, 4];
const ROWS: i64 = SIZES[0] * SIZES[1];

/// The stride of a tensor along an axis; along L it is 1.
fn stride(tensor: Tensor, axis: Axis) -> i64 {
    match (tensor, axis.0) {
        (Tensor::Param(0), 0) => 1000,
        (Tensor::Param(0), 1) => -37,
        (Tensor::Param(1), 0) => 0,
        (Tensor::Param(1), 1) => 3,
        (_, 2) => 1,
        (_, axis) => 100 + i64::from(axis),
    }
}

/// For every row: its two indices, and the offsets of x at time 2, of w and of y at time 3.
fn found() -> Vec<f64> {
    let stage = stage();
    let mut b = Builder::new("k", 32);
    let args = Args::declare(&mut b, &stage, slots(&stage));
    let y = Place::Global(b.param("found", ParamKind::Write(Elem::I64)));
    let thread = b.special(Special::Thread);
    let row = b.convert(Ty::I64, thread);
    let rows = args.rows(&mut b, stage.outer_axes());
    let exists = b.lt(row, rows);
    b.if_(exists, |b| {
        let indices = args.row_indices(b, row);
        let at = |time: i64| [&indices[..], &[(Axis(2), Operand::i64(time))]].concat();
        let mut values: Vec<Operand> =
            (0..2).map(|axis| indices.iter().find(|(a, _)| a.0 == axis).expect("an outer axis").1).collect();
        values.push(args.offset(b, Tensor::Param(0), &at(2)));
        values.push(args.offset(b, Tensor::Param(1), &indices));
        values.push(args.offset(b, Tensor::Output(0), &at(3)));
        for (k, value) in (0..).zip(values) {
            let first = b.mul(row, 5);
            let place = b.add(first, k);
            b.store(y, place, &[value], None);
        }
    });
    let kernel = b.finish();
    let mut memory = Memory::new();
    let result = memory.add(Buffer::unwritten(Elem::I64, 5 * ROWS as usize));
    let mut given: Vec<Arg> = slots(&stage)
        .into_iter()
        .map(|slot| match slot.role {
            Role::Size(axis) => Arg::Scalar(Literal::Int(SIZES[axis.0 as usize])),
            Role::Stride(tensor, axis) => Arg::Scalar(Literal::Int(stride(tensor, axis))),
            _ => memory.add(Buffer::unwritten(Elem::F32, 1)).into(),
        })
        .collect();
    given.push(result.into());
    let launch = Launch { grid: [1, 1], args: given };
    simulate(&kernel, &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    memory.buffer(result).to_floats()
}

#[test]
fn rows_have_their_indices_and_tensors_their_offsets() {
    let mut expected = vec![];
    for batch in 0..SIZES[0] {
        for channel in 0..SIZES[1] {
            let of = |tensor, channel: i64, time: i64| {
                [batch, channel, time].iter().zip(0..).map(|(i, axis)| i * stride(tensor, Axis(axis))).sum::<i64>()
            };
            // A displaced read stays inside of the axis.
            let before = (channel - 1).max(0);
            expected.extend([batch, channel, of(Tensor::Param(0), channel, 2), of(Tensor::Param(1), before, 0)]);
            expected.push(of(Tensor::Output(0), channel, 3));
        }
    }
    assert_eq!(found(), expected.into_iter().map(|i| i as f64).collect::<Vec<_>>());
}
