//! One stage under a schedule of pairs, simulated.

use oplus_codegen::abi::{Role, Tensor, axes, elem};
use oplus_codegen::schedules::flash;
use oplus_codegen::schedules::{Flash, Strategy};
use oplus_codegen::simulate::{Arg, Buffer, BufferId, Launch, Memory, Options, Order, simulate};
use oplus_codegen::stage::Stage;
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Literal};
use oplus_dsl::scalar::round;
use std::collections::HashMap;

/// A run: the size of every axis, and for every parameter its elements.
pub(crate) struct Case<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) sizes: &'a [usize],
    pub(crate) inputs: Vec<Array>,
    /// The elements by which rows of tensors are longer than they need be, a multiple of 8.
    pub(crate) pad: usize,
}

/// Numbers between −1 and 1, rounded to an element type, different for every seed.
pub(crate) fn numbers(elem: Elem, len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        round(elem, (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0)
    };
    (0..len).map(|_| next()).collect()
}

impl<'a> Case<'a> {
    /// A run on such numbers.
    pub(crate) fn new(stage: &'a Stage, sizes: &'a [usize]) -> Case<'a> {
        let array = |(i, p): (usize, &oplus_dsl::ir::Param)| {
            let own: Vec<usize> = p.axes.iter().map(|a| sizes[a.0 as usize]).collect();
            let len = own.iter().product();
            Array { sizes: own, data: Data::Float(numbers(p.elem, len, i as u64 + 3)) }
        };
        let inputs = stage.program.params.iter().enumerate().map(array).collect();
        Case { stage, sizes, inputs, pad: 0 }
    }

    /// The meaning of the program.
    pub(crate) fn wanted(&self) -> Vec<Array> {
        let given: Vec<Option<Array>> = self.inputs.iter().cloned().map(Some).collect();
        let sizes: Vec<(Axis, usize)> = (0..).map(Axis).zip(self.sizes.iter().copied()).collect();
        interpret_sized(&self.stage.program, &given, &sizes, Mode::default()).expect("runs")
    }

    /// Some elements of an input are infinite or NaN: those that `elements` gives.
    pub(crate) fn set_non_finite(&mut self, input: usize, elements: &[(usize, f64)]) {
        let Data::Float(numbers) = &mut self.inputs[input].data else { return };
        let len = numbers.len();
        elements.iter().filter(|(at, _)| *at < len).for_each(|(at, x)| numbers[*at] = *x);
    }

    /// The outputs of the kernel, in some order of events.
    pub(crate) fn run(&self, schedule: &Flash, order: Order) -> Vec<Array> {
        let kernel = flash::lower(self.stage, schedule, "k").unwrap_or_else(|e| panic!("{schedule}: {e}"));
        let mut memory = Memory::new();
        let mut buffers: HashMap<Tensor, BufferId> = HashMap::new();
        for (i, input) in self.inputs.iter().enumerate() {
            let tensor = Tensor::Param(i as u32);
            let mut buffer = vec![Literal::zero(elem(self.stage, tensor).value()); self.len(tensor)];
            self.positions(tensor).into_iter().enumerate().for_each(|(k, at)| buffer[at] = input.data.get(k));
            buffers.insert(tensor, memory.add(Buffer::of(elem(self.stage, tensor), buffer)));
        }
        for i in 0..self.stage.program.outputs.len() {
            let tensor = Tensor::Output(i as u32);
            buffers.insert(tensor, memory.add(Buffer::unwritten(elem(self.stage, tensor), self.len(tensor))));
        }
        let arg = |role| match role {
            Role::Pointer(tensor) => Arg::from(buffers[&tensor]),
            Role::Size(axis) => Arg::Scalar(Literal::Int(self.size(axis) as i64)),
            Role::Stride(tensor, axis) => Arg::Scalar(Literal::Int(self.stride(tensor, axis))),
            Role::Messages | Role::Control | Role::Scratch(_) | Role::SegmentTiles | Role::Piece => {
                panic!("blocks do not talk to each other")
            }
        };
        let args = schedule.abi(self.stage).into_iter().map(|slot| arg(slot.role)).collect();
        let form = self.stage.kind().pairwise().expect("has the form");
        let points: usize = flash::outer_axes(form).iter().map(|a| self.size(a)).product();
        let blocks = points * self.size(form.row).div_ceil(schedule.rows() as usize);
        // Persistent blocks are fewer, so that each has several tiles of rows.
        let blocks = if schedule.persistent { blocks.min(2) } else { blocks };
        let launch = Launch { grid: [blocks as u32, 1], args };
        let options = Options { order, ..Options::default() };
        simulate(&kernel, &launch, &mut memory, &options)
            .unwrap_or_else(|e| panic!("{schedule} {:?}: {e}", self.sizes));
        let read = |i: usize| {
            let tensor = Tensor::Output(i as u32);
            let buffer = memory.buffer(buffers[&tensor]);
            let values = self.positions(tensor).into_iter().map(|at| buffer.value(at).expect("written").as_f64());
            Array { sizes: self.shape(tensor), data: Data::Float(values.collect()) }
        };
        (0..self.stage.program.outputs.len()).map(read).collect()
    }

    /// The kernel gives what the program means, as 8 bits of weights allow.
    pub(crate) fn check(&self, schedule: &Flash, order: Order) {
        self.check_to(schedule, order, 2e-2);
    }

    /// The kernel gives what the program means, to that error.
    pub(crate) fn check_to(&self, schedule: &Flash, order: Order, error: f64) {
        let (wanted, found) = (self.wanted(), self.run(schedule, order));
        for ((wanted, found), output) in wanted.iter().zip(&found).zip(&self.stage.program.outputs) {
            let (wanted, found) = (wanted.as_floats().expect("floats"), found.as_floats().expect("floats"));
            for (i, (a, b)) in wanted.iter().zip(found).enumerate() {
                // The parts of an infinite `f32` are infinite, too, and of different signs.
                let lost = !a.is_finite() && b.is_nan() && output.elem == Elem::F32;
                let close = a == b || a.is_nan() && b.is_nan() || lost || (a - b).abs() <= error * (1.0 + a.abs());
                assert!(close, "`{}`[{i}] is {b} instead of {a}: {:?} {schedule}", output.name, self.sizes);
            }
        }
    }

    fn size(&self, axis: Axis) -> usize {
        self.sizes[axis.0 as usize]
    }

    fn shape(&self, tensor: Tensor) -> Vec<usize> {
        axes(self.stage, tensor).iter().map(|a| self.size(*a)).collect()
    }

    fn strides(&self, tensor: Tensor) -> Vec<usize> {
        let shape = self.shape(tensor);
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            let pad = if i == shape.len() - 1 { self.pad } else { 0 };
            strides[i - 1] = strides[i] * (shape[i] + pad);
        }
        strides
    }

    fn stride(&self, tensor: Tensor, axis: Axis) -> i64 {
        let place = axes(self.stage, tensor).iter().position(|a| *a == axis).expect("has the axis");
        self.strides(tensor)[place] as i64
    }

    fn len(&self, tensor: Tensor) -> usize {
        self.strides(tensor).iter().zip(self.shape(tensor)).map(|(stride, n)| stride * n).max().unwrap_or(1)
    }

    fn positions(&self, tensor: Tensor) -> Vec<usize> {
        let (shape, strides) = (self.shape(tensor), self.strides(tensor));
        let position = |number: usize| {
            let mut rest = number;
            shape.iter().zip(&strides).rev().fold(0, |at, (size, stride)| {
                let index = rest % size;
                rest /= size;
                at + index * stride
            })
        };
        (0..shape.iter().product()).map(position).collect()
    }
}
