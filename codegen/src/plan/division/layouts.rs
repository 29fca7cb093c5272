//! The sizes and layouts of a call, as stages and launches see them.

use oplus_dsl::ir::Axis;

use super::{Division, Given};
use crate::abi::{Role, Tensor, axes, tensors};
use crate::plan::sizes::{are_countable, count, merged, shape};
use crate::plan::{Arg, Buffer, Call, Layout, PlanError};
use crate::schedules::{Problem, Schedule, Segments};
use crate::stage::{Bound, Placed, Sink, Source, Stage};

impl Division {
    pub(super) fn buffers(&self, call: &Call) -> Result<Vec<Buffer>, PlanError> {
        let buffer = |b: &crate::stage::Temporary| match count(call, &b.axes) {
            Some(len) => Ok(Buffer { elem: b.elem, len }),
            None => Err(PlanError::TooLarge { name: b.name.clone(), shape: self.shape(call, &b.axes) }),
        };
        self.cut.buffers.iter().map(buffer).collect()
    }

    /// Checks that indices count the points of every stage.
    pub(super) fn check(&self, call: &Call) -> Result<(), PlanError> {
        for stage in &self.cut.stages {
            let sizes = stage.axes.iter().map(|group| merged(call, group));
            if !are_countable(sizes.clone()) {
                let shape = shape(stage.program.axes.iter().map(String::as_str).zip(sizes));
                return Err(PlanError::TooLarge { name: stage.program.name.clone(), shape });
            }
        }
        Ok(())
    }

    /// The sizes of axes of the program in words, with the names that a stage has for them.
    fn shape(&self, call: &Call, axes: &[Axis]) -> String {
        let name = |axis: Axis| {
            let of = |stage: &'_ Stage| {
                let place = stage.axes.iter().position(|group| group.contains(&axis))?;
                Some(stage.program.axes[place].clone())
            };
            self.cut.stages.iter().find_map(of).unwrap_or_default()
        };
        let names: Vec<String> = axes.iter().map(|axis| name(*axis)).collect();
        shape(names.iter().map(String::as_str).zip(axes.iter().map(|a| call.sizes[a.0 as usize])))
    }

    /// A stage's sizes and layouts.
    pub(super) fn bind(&self, call: &Given, stage: &Stage) -> Bound {
        let sizes: Vec<i64> = stage.axes.iter().map(|group| merged(call, group)).collect();
        let place = |tensor: Tensor| {
            let source = match tensor {
                Tensor::Param(i) => stage.sources[i as usize],
                Tensor::Output(i) => match stage.sinks[i as usize] {
                    Sink::Output(k) => Source::Output(k),
                    Sink::Buffer(k) => Source::Buffer(k),
                },
            };
            let of = |layout: &Layout| Placed { strides: layout.strides.clone(), align: layout.align };
            match source {
                Source::Param(i) => call.params[i as usize].as_ref().map(of),
                Source::Output(i) => Some(of(&call.outputs[i as usize])),
                Source::Buffer(k) => call.kept.get(k as usize).and_then(Option::as_ref).map(of),
            }
            .unwrap_or_else(|| contiguous(axes(stage, tensor), &sizes))
        };
        let tensors = tensors(stage).map(place).collect();
        Bound { tensors, sizes: stage.sequences().map_or(sizes.clone(), |sequences| sequences.sizes(&sizes)) }
    }
}

/// The layout of a tensor without gaps.
pub(super) fn contiguous(axes: &[Axis], sizes: &[i64]) -> Placed {
    let Layout { strides, align } = Layout::contiguous(axes, sizes);
    Placed { strides, align }
}

/// The arguments of a launch.
pub(super) fn args(schedule: &Schedule, problem: &Problem<'_>, segments: Segments, piece: i64) -> Vec<Arg> {
    let (stage, bound) = (problem.stage, problem.bound);
    let pointer = |tensor| match tensor {
        Tensor::Param(i) => match stage.sources[i as usize] {
            Source::Param(k) => Arg::Param(k),
            Source::Output(k) => Arg::Output(k),
            Source::Buffer(k) => Arg::Buffer(k),
        },
        Tensor::Output(i) => match stage.sinks[i as usize] {
            Sink::Output(k) => Arg::Output(k),
            Sink::Buffer(k) => Arg::Buffer(k),
        },
    };
    let arg = |role| match role {
        Role::Pointer(tensor) => pointer(tensor),
        Role::Stride(tensor, axis) => Arg::I64(bound.stride(stage, tensor, axis).unwrap_or(0)),
        Role::Size(axis) => Arg::I64(bound.size(axis)),
        Role::Scratch(k) => Arg::Buffer(k),
        Role::SegmentTiles => Arg::I64(segments.tiles as i64),
        Role::Piece => Arg::I64(piece),
        Role::Messages => Arg::Messages,
        Role::Control => Arg::Control,
    };
    schedule.roles(stage).into_iter().map(arg).collect()
}
