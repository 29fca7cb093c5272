//! What a launch passes to a kernel, in order: one list, read by the lowering and by the planner.

use oplus_dsl::ir::{Axis, AxisSet};

use crate::schedule::{Form, Pass, Schedule, StateSpace};
use crate::stage::Stage;
use crate::tile::{Param, ParamKind};
use oplus_dsl::Ty;

/// A parameter of a stage's kernel and what it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The kernel's parameter.
    pub param: Param,
    /// What it stands for.
    pub role: Role,
}

/// What a kernel's parameter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A tensor's first element.
    Pointer(Tensor),
    /// A tensor's stride along an axis of the stage, in elements, `i64`.
    Stride(Tensor, Axis),
    /// The size of an axis of the stage, `i64`.
    Size(Axis),
    /// The first of the numbers that kernels of one stage hand on: the saved states, the sums of blocks and those of pieces so
    /// far, the ends, carries and totals of segments.
    Scratch(u32),
    /// Whether a launch takes one of several pieces of the rows, see [`Piece`], `i64`.
    Piece,
    /// The tiles of a segment of time, `i64`.
    SegmentTiles,
    /// Message words between blocks.
    Messages,
    /// The control word of the launch.
    Control,
}

/// The bits of [`Role::Piece`].
#[derive(Clone, Copy, Debug)]
pub struct Piece;

impl Piece {
    /// There are pieces before it.
    pub const CONTINUES: i64 = 1;
    /// There are pieces after it.
    pub const GOES_ON: i64 = 2;
}

/// A tensor of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tensor {
    /// The stage's parameter of that index.
    Param(u32),
    /// The stage's output of that index.
    Output(u32),
}

/// The parameters of a stage's kernel under a schedule, in order: the pointers of the stage's parameters and outputs,
/// the sizes of the stage's axes, the strides of every tensor along each of its axes (but its unit axis, where it
/// is 1), for schedules that save states their scratch, for those with segments the tiles of one, for sums over rows their
/// piece, and for schedules with look-back the messages and the control word.
pub fn abi(stage: &Stage, schedule: &Schedule) -> Vec<Slot> {
    let program = &stage.program;
    let unit = schedule.unit_axes(stage);
    let mut slots: Vec<Slot> = tensors(stage).map(|t| pointer(stage, t)).collect();
    slots.extend(
        (0..program.axes.len() as u32)
            .map(|a| scalar(format!("size_{}", program.axes[a as usize]), Role::Size(Axis(a)))),
    );
    for tensor in tensors(stage) {
        let own = unit_axis(stage, unit, tensor);
        let strided = axes(stage, tensor).iter().filter(|a| Some(**a) != own);
        let stride = |a: &Axis| {
            scalar(format!("stride_{}_{}", name(stage, tensor), program.axis_name(*a)), Role::Stride(tensor, *a))
        };
        slots.extend(strided.map(stride));
    }
    let names: &[&str] = match schedule {
        Schedule::StateSpaceBackward(s) if s.segmented => {
            &["saved_states", "block_sums", "sums_so_far", "segment_carries", "segment_totals", "segment_ends"]
        }
        Schedule::StateSpaceBackward(_) => &["saved_states", "block_sums", "sums_so_far"],
        Schedule::StateSpace(StateSpace { save: true, segmented: false, .. }) => &["saved_states"],
        Schedule::StateSpace(StateSpace { save: true, segmented: true, .. }) => &["saved_states", "segment_ends"],
        Schedule::StateSpace(StateSpace { segmented: true, .. }) => &["segment_ends"],
        Schedule::Chunkwise(_) => &["ends"],
        Schedule::ChunkwiseBackward(_) => &["saved_states", "saved_cotangents", "ends"],
        _ => &[],
    };
    let scratch = |(i, name): (u32, &str)| {
        let elem = scratch_elem(stage, schedule, i);
        Slot { param: param(name, ParamKind::Write(elem)), role: Role::Scratch(i) }
    };
    slots.extend((0..).zip(names.iter().copied()).map(scratch));
    if schedule.is_segmented() {
        slots.push(scalar("segment_tiles".to_owned(), Role::SegmentTiles));
    }
    if matches!(schedule, Schedule::StateSpaceBackward(s) if s.pass == Pass::Sum) {
        slots.push(scalar("piece".to_owned(), Role::Piece));
    }
    if looks_back(schedule) {
        slots.push(Slot { param: param("messages", ParamKind::Messages), role: Role::Messages });
        slots.push(Slot { param: param("control", ParamKind::Control), role: Role::Control });
    }
    slots
}

/// The type of the numbers that kernels of one stage hand on, of one kind.
pub fn scratch_elem(stage: &Stage, schedule: &Schedule, number: u32) -> oplus_dsl::Elem {
    let rounds = matches!(schedule, Schedule::ChunkwiseBackward(_)) && number < 2;
    let back = rounds.then(|| stage.kind().matrices_back().ok()).flatten();
    back.map_or(oplus_dsl::Elem::F32, |form| form.state_elem(stage))
}

/// Every tensor of a stage: parameters, then outputs.
pub fn tensors(stage: &Stage) -> impl Iterator<Item = Tensor> + use<> {
    let (params, outputs) = (stage.program.params.len() as u32, stage.program.outputs.len() as u32);
    (0..params).map(Tensor::Param).chain((0..outputs).map(Tensor::Output))
}

/// The axes of a tensor in the order of its declaration.
pub fn axes(stage: &Stage, tensor: Tensor) -> &[Axis] {
    match tensor {
        Tensor::Param(i) => &stage.program.params[i as usize].axes,
        Tensor::Output(i) => &stage.program.outputs[i as usize].axes,
    }
}

/// The unit axis of a tensor: the last that it has of a schedule's unit axes.
pub fn unit_axis(stage: &Stage, unit: AxisSet, tensor: Tensor) -> Option<Axis> {
    axes(stage, tensor).iter().rev().copied().find(|axis| unit.contains(*axis))
}

/// The name of a tensor.
pub fn name(stage: &Stage, tensor: Tensor) -> &str {
    match tensor {
        Tensor::Param(i) => &stage.program.params[i as usize].name,
        Tensor::Output(i) => &stage.program.outputs[i as usize].name,
    }
}

/// The element type of a tensor.
pub fn elem(stage: &Stage, tensor: Tensor) -> oplus_dsl::Elem {
    match tensor {
        Tensor::Param(i) => stage.program.params[i as usize].elem,
        Tensor::Output(i) => stage.program.outputs[i as usize].elem,
    }
}

/// Whether blocks exchange messages under a schedule.
pub fn looks_back(schedule: &Schedule) -> bool {
    match schedule {
        Schedule::Map(_)
        | Schedule::Rows(_)
        | Schedule::StateSpace(_)
        | Schedule::Flash(_)
        | Schedule::StateSpaceBackward(_)
        | Schedule::Chunkwise(_)
        | Schedule::ChunkwiseBackward(_) => false,
        Schedule::LookBack(_) => true,
        Schedule::Columns(s) => s.form == Form::Ring,
    }
}

fn pointer(stage: &Stage, tensor: Tensor) -> Slot {
    let elem = elem(stage, tensor);
    let kind = match tensor {
        Tensor::Param(_) => ParamKind::Read(elem),
        Tensor::Output(_) => ParamKind::Write(elem),
    };
    Slot { param: param(name(stage, tensor), kind), role: Role::Pointer(tensor) }
}

fn scalar(name: String, role: Role) -> Slot {
    Slot { param: Param { name, kind: ParamKind::Scalar(Ty::I64) }, role }
}

fn param(name: &str, kind: ParamKind) -> Param {
    Param { name: name.to_owned(), kind }
}
