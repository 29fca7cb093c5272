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

/// The parameters of a stage's kernel, in order: those that [`roles`] lists.
pub fn abi(stage: &Stage, extras: &Extras) -> Vec<Slot> {
    roles(stage, extras).into_iter().map(|role| Slot { param: param(stage, extras, role), role }).collect()
}

/// The roles of the parameters of a stage's kernel, in order: the pointers of the stage's parameters and outputs, the sizes of the
/// stage's axes, the strides of every tensor along each of its axes (but its unit axis, where it is 1), and then the extras.
pub fn roles(stage: &Stage, extras: &Extras) -> Vec<Role> {
    let mut roles: Vec<Role> = tensors(stage).map(Role::Pointer).collect();
    roles.extend((0..stage.program.axes.len() as u32).map(|axis| Role::Size(Axis(axis))));
    for tensor in tensors(stage) {
        let own = unit_axis(stage, extras.unit_axes, tensor);
        let strided = axes(stage, tensor).iter().filter(|axis| Some(**axis) != own);
        roles.extend(strided.map(|axis| Role::Stride(tensor, *axis)));
    }
    roles.extend((0..extras.scratch.len() as u32).map(Role::Scratch));
    roles.extend(extras.has_segments.then_some(Role::SegmentTiles));
    roles.extend(extras.has_pieces.then_some(Role::Piece));
    roles.extend(extras.has_messages.then_some([Role::Messages, Role::Control]).into_iter().flatten());
    roles
}

/// The unit axis of a tensor: the last that it has of some unit axes.
pub fn unit_axis(stage: &Stage, unit: AxisSet, tensor: Tensor) -> Option<Axis> {
    axes(stage, tensor).iter().rev().copied().find(|axis| unit.contains(*axis))
}

/// The kernel's parameter of a role.
fn param(stage: &Stage, extras: &Extras, role: Role) -> Param {
    let (name, kind) = match role {
        Role::Pointer(tensor) => (name(stage, tensor).to_owned(), kind_of(stage, tensor)),
        Role::Size(axis) => (format!("size_{}", stage.program.axis_name(axis)), ParamKind::Scalar(Ty::I64)),
        Role::Stride(tensor, axis) => {
            let name = format!("stride_{}_{}", name(stage, tensor), stage.program.axis_name(axis));
            (name, ParamKind::Scalar(Ty::I64))
        }
        Role::Scratch(k) => {
            let (name, elem) = extras.scratch[k as usize];
            (name.to_owned(), ParamKind::Write(elem))
        }
        Role::SegmentTiles => ("segment_tiles".to_owned(), ParamKind::Scalar(Ty::I64)),
        Role::Piece => ("piece".to_owned(), ParamKind::Scalar(Ty::I64)),
        Role::Messages => ("messages".to_owned(), ParamKind::Messages),
        Role::Control => ("control".to_owned(), ParamKind::Control),
    };
    Param { name, kind }
}

fn kind_of(stage: &Stage, tensor: Tensor) -> ParamKind {
    let elem = elem(stage, tensor);
    match tensor {
        Tensor::Param(_) => ParamKind::Read(elem),
        Tensor::Output(_) => ParamKind::Write(elem),
    }
}
