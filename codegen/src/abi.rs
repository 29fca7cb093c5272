//! The parameters of a kernel, in order: one list, read by the lowering and by the planner.

use oplus_dsl::ir::{Axis, AxisSet};

use crate::stage::Stage;
pub use crate::stage::tensor::{Tensor, axes, elem, name, tensors};
use crate::tile::{Param, ParamKind};
use oplus_dsl::{Elem, Ty};

/// A parameter of a stage's kernel and its role.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The kernel's parameter.
    pub param: Param,
    /// The thing that it stands for.
    pub role: Role,
}

/// The role of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A tensor's first element.
    Pointer(Tensor),
    /// A tensor's stride along an axis of the stage, in elements, `i64`.
    Stride(Tensor, Axis),
    /// The size of an axis of the stage, `i64`.
    Size(Axis),
    /// The first number of scratch memory through which kernels of one stage pass values on: saved states, sums of blocks and
    /// of pieces so far, carries and totals of segments.
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
    /// Pieces of rows come before this one.
    pub const CONTINUES: i64 = 1;
    /// Pieces of rows come after this one.
    pub const GOES_ON: i64 = 2;
}

/// The arguments that a kernel takes beside the tensors of its stage and their sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// The axes along which a tensor has stride 1, so that it is not passed: of each tensor the last that it has of them.
    pub unit_axes: AxisSet,
    /// The names and types of the numbers that the kernels of a stage hand to one another.
    pub scratch: Vec<(&'static str, Elem)>,
    /// Whether it takes the tiles of a segment of time.
    pub has_segments: bool,
    /// Whether it takes which pieces of the rows there are.
    pub has_pieces: bool,
    /// Whether it takes messages and control words.
    pub has_messages: bool,
}

/// The parameters of a stage's kernel, in order: the pointers of the stage's parameters and outputs, the sizes of the stage's
/// axes, the strides of every tensor along each of its axes (but its unit axis, where it is 1), and then the extras.
pub fn abi(stage: &Stage, extras: &Extras) -> Vec<Slot> {
    let program = &stage.program;
    let unit = extras.unit_axes;
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
    let scratch = |(i, (name, elem)): (u32, &(&str, Elem))| Slot {
        param: param(name, ParamKind::Write(*elem)),
        role: Role::Scratch(i),
    };
    slots.extend((0..).zip(&extras.scratch).map(scratch));
    if extras.has_segments {
        slots.push(scalar("segment_tiles".to_owned(), Role::SegmentTiles));
    }
    if extras.has_pieces {
        slots.push(scalar("piece".to_owned(), Role::Piece));
    }
    if extras.has_messages {
        slots.push(Slot { param: param("messages", ParamKind::Messages), role: Role::Messages });
        slots.push(Slot { param: param("control", ParamKind::Control), role: Role::Control });
    }
    slots
}

/// The unit axis of a tensor: the last that it has of some unit axes.
pub fn unit_axis(stage: &Stage, unit: AxisSet, tensor: Tensor) -> Option<Axis> {
    axes(stage, tensor).iter().rev().copied().find(|axis| unit.contains(*axis))
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
