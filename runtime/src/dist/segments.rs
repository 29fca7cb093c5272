//! Shards in segments: how many a shard has, and its tensors by segments.

use std::collections::HashMap;
use std::sync::PoisonError;

use oplus_codegen::plan::{self, Launch};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::shard::SEGMENTS;

use super::plan::Plan;
use crate::bind::Binding;
use crate::execute::{Executable, Hand, Signature};
use crate::layout::Layout;
use crate::tensor::Storage;
use crate::{Device, Error, Tensor, source};

/// The numbers of segments that estimates are compared of.
const CHOICES: [usize; 5] = [8, 16, 32, 64, 128];
/// The fewest elements of a segment.
const LEAST: usize = 256;

/// The segments of the shard of a call.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    /// How many there are.
    pub(super) count: usize,
    /// The size of the shard along the divided axis.
    pub(super) size: usize,
}

impl Segments {
    /// The size of one segment.
    pub(super) fn each(self) -> usize {
        self.size / self.count
    }

    /// A view of a tensor whose axis of that number is divided into segments: these are its first axis.
    pub(super) fn divided(self, tensor: &Tensor, along: usize) -> Result<Tensor, Error> {
        let Layout { shape, strides, offset } = &*tensor.layout;
        let (shape, strides) = self.layout(shape, strides, along);
        tensor.as_strided(&shape, &strides, *offset)
    }

    /// The shape and the strides of such a view.
    fn layout(self, shape: &[usize], strides: &[i64], along: usize) -> (Vec<usize>, Vec<i64>) {
        let (mut shape, each) = (shape.to_vec(), self.each());
        shape[along] = each;
        shape.insert(0, self.count);
        let mut strides = strides.to_vec();
        strides.insert(0, strides[along] * each as i64);
        (shape, strides)
    }
}

/// The place of an axis among those of a tensor of a phase in segments, without the axis of segments.
pub(super) fn divided_axis(program: &Program, axes: &[Axis], axis: &str) -> Option<usize> {
    let own = |axis: &Axis| program.axis_name(*axis);
    let at = axes.iter().position(|other| own(other) == axis)?;
    (axes.first().map(own) == Some(SEGMENTS)).then(|| at - 1)
}

/// A call of phases whose kernels are estimated.
pub(super) struct Estimate<'a> {
    pub(super) axis: &'a str,
    pub(super) program: &'a Program,
    pub(super) binding: &'a Binding<'a>,
    /// Which parameters of the whole program are given.
    pub(super) given: &'a [bool],
    /// The size of the shard.
    pub(super) size: usize,
}

impl Estimate<'_> {
    /// The number of segments with which a call is estimated to be fastest; 1 where it is fastest without, or on a CPU.
    pub(super) fn fastest(&self, whole: &Plan, in_segments: &Plan) -> usize {
        let Device::Cuda(device) = self.binding.home.map_or(Device::Cpu, Storage::device) else { return 1 };
        if device.0.schedule_rank() > 0 || device.0.only().is_some() {
            return 1;
        }
        let micros = |plan: &Plan, count: usize| self.micros(plan, Segments { count, size: self.size }, &device);
        let divides = |count: &usize| self.size.is_multiple_of(*count) && self.size / count >= LEAST;
        let choices =
            CHOICES.into_iter().filter(divides).filter_map(|count| Some((count, micros(in_segments, count)?)));
        let Some(without) = micros(whole, 1) else { return 1 };
        choices.fold((1, without), |best, other| if other.1 < best.1 { other } else { best }).0
    }

    /// Microseconds of the programs of all phases; `None` where one has no plan, or a kernel is not there.
    fn micros(&self, plan: &Plan, segments: Segments, device: &crate::cuda::CudaDevice) -> Option<f64> {
        let programs = plan.phases.iter().filter_map(|phase| phase.program.as_ref());
        programs.map(|executable| self.of_program(executable, segments, device)).sum()
    }

    fn of_program(&self, executable: &Executable, segments: Segments, device: &crate::cuda::CudaDevice) -> Option<f64> {
        let program = &executable.program;
        let is_given = |name: &str| match self.program.param(name) {
            Some(k) => self.given[k as usize],
            None => true,
        };
        let given: Vec<bool> = program.params.iter().map(|param| is_given(&param.name)).collect();
        let wanted = vec![true; program.outputs.len()];
        let signature = Signature { elem: self.binding.elem, given, wanted, ordered: crate::ordered::is_ordered() };
        let variant = executable.variant(&signature).ok()?;
        let sizes: Vec<usize> = program.axes.iter().map(|name| self.size_of(name, segments)).collect();
        let layout = |axes: &[Axis]| self.layout(program, axes, &sizes, segments);
        let params = variant.program.params.iter();
        let call = plan::Call {
            sizes: sizes.iter().map(|&n| n as i64).collect(),
            params: params.map(|p| is_given(&p.name).then(|| layout(&p.axes))).collect(),
            outputs: variant.program.outputs.iter().map(|output| layout(&output.axes)).collect(),
        };
        let target = device.target();
        let plan = variant.plan(&call, &target, 0).ok()?;
        let is_there = |launch: &Launch| source::has(launch, target.isa);
        let planned = match plan.steps.iter().all(is_there) {
            true => plan,
            false => variant.plan_among(&call, &target, Hand::Nothing, &is_there).ok()?.0,
        };
        Some(planned.micros())
    }

    /// The size of an axis of a phase's program.
    fn size_of(&self, name: &str, segments: Segments) -> usize {
        match name {
            SEGMENTS => segments.count,
            name if name == self.axis => segments.each(),
            name => self.program.axis(name).map_or(1, |axis| self.binding.sizes[axis.0 as usize]),
        }
    }

    /// The layout of a tensor: that of the whole is contiguous.
    fn layout(&self, program: &Program, axes: &[Axis], sizes: &[usize], segments: Segments) -> plan::Layout {
        let shape: Vec<usize> = axes.iter().map(|axis| sizes[axis.0 as usize]).collect();
        let strides =
            |shape: &[usize]| Layout::contiguous(shape).map_or_else(|_| vec![0; shape.len()], |own| own.strides);
        let strides = match divided_axis(program, axes, self.axis) {
            Some(along) => {
                let mut whole = shape[1..].to_vec();
                whole[along] = segments.size;
                segments.layout(&whole, &strides(&whole), along).1
            }
            None => strides(&shape),
        };
        plan::Layout { strides, align: 16 }
    }
}

/// The facts that a choice depends on: the sizes of all axes, the element type, and which parameters are given.
pub(super) type Key = (Vec<usize>, oplus_dsl::Elem, Vec<bool>);

/// The choices that were made.
#[derive(Default)]
pub(super) struct Chosen(std::sync::Mutex<HashMap<Key, usize>>);

impl Chosen {
    /// The choice for a call, which is made once.
    pub(super) fn get(&self, key: Key, choose: impl FnOnce() -> usize) -> usize {
        let mut chosen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *chosen.entry(key).or_insert_with(choose)
    }
}

/// Tensors that a phase in segments has of its own, by name.
pub(super) type Own = HashMap<String, Tensor>;
