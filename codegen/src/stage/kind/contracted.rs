//! Scans whose states are summed away, which a kernel can walk step by step.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Op, Program, Value};
use oplus_dsl::walk::{all, any};

use super::hoist::hoist;
use crate::stage::{Refusal, Scan, Stage};

/// A scan whose states are summed away, as a kernel walks it.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// The stage's program with work taken out of its inner loop; its axes and tensors are unchanged.
    pub program: Program,
}

impl Walk {
    /// The walk of a stage with contractions.
    pub(super) fn of(stage: &Stage) -> Result<Walk, Refusal> {
        let (Some(scan), Some(state)) = (stage.scan(), stage.state_axis()) else { return Err(Refusal::NoContraction) };
        check_types(stage)?;
        check_outputs(stage, &scan, state)?;
        check_positions(stage, &scan)?;
        Ok(Walk { program: hoist(&stage.program, scan.axis, state) })
    }
}

/// Whether a type takes more than a register, or is no number and no flag.
pub(super) fn is_wide(ty: Ty) -> bool {
    !matches!(ty, Ty::F32 | Ty::I32 | Ty::U32 | Ty::Bool)
}

/// Refuses parameters whose elements a register cannot hold, and views.
pub(super) fn check_params(stage: &Stage) -> Result<(), Refusal> {
    if let Some(param) = stage.program.params.iter().find(|p| is_wide(p.elem.value())) {
        return Err(Refusal::Elem { param: param.name.clone(), elem: param.elem.to_string() });
    }
    Ok(())
}

fn check_types(stage: &Stage) -> Result<(), Refusal> {
    check_params(stage)?;
    let fields = stage.program.operators.iter().flat_map(|o| &o.fields);
    if let Some(field) = fields.into_iter().find(|f| is_wide(f.ty)) {
        return Err(Refusal::Field { field: field.name.clone(), ty: format!("{:?}", field.ty) });
    }
    if stage.views.iter().any(|views| !views.is_empty()) { Err(Refusal::Displaced) } else { Ok(()) }
}

fn check_outputs(stage: &Stage, scan: &Scan<'_>, state: Axis) -> Result<(), Refusal> {
    for (k, output) in stage.program.outputs.iter().enumerate() {
        let known =
            if stage.is_final(k) { is_last(stage, scan.axis, output.value) } else { is_drained(stage, output.value) };
        if !known || !stage.is_final(k) && output.axes.contains(&state) {
            return Err(Refusal::Output { output: output.name.clone() });
        }
    }
    Ok(())
}

fn check_positions(stage: &Stage, scan: &Scan<'_>) -> Result<(), Refusal> {
    let program = &stage.program;
    let sums = program
        .nodes
        .iter()
        .filter_map(|n| if let Op::Reduce { elements, .. } = &n.op { Some(elements[0]) } else { None });
    if !scan.elements.iter().chain(scan.init).copied().chain(sums).all(|v| is_here(stage, v)) {
        return Err(Refusal::Elsewhere);
    }
    let position = |op: &Op| matches!(op, Op::Shift { .. } | Op::First { .. } | Op::Starts { .. });
    let backward = |op: &Op| matches!(op, Op::First { value, .. } if scan.reverse && !is_point(program, *value));
    if program.nodes.iter().any(|n| position(&n.op) && !backward(&n.op)) {
        return Err(Refusal::Elsewhere);
    }
    Ok(())
}

/// Whether a value depends on parameters alone.
pub(crate) fn is_point(program: &Program, value: Value) -> bool {
    !any(program, value, |v| matches!(program.node(v).op, Op::Field(..)))
}

/// Whether a value is a map of states and parameters at the point.
fn is_here(stage: &Stage, value: Value) -> bool {
    all(&stage.program, value, |v| match &stage.program.node(v).op {
        Op::Last { .. } | Op::First { .. } | Op::Shift { .. } | Op::Starts { .. } => Some(false),
        Op::Field(..) => Some(true),
        _ => None,
    })
}

/// Whether a value is a map of sums and point values.
pub(super) fn is_drained(stage: &Stage, value: Value) -> bool {
    let program = &stage.program;
    all(program, value, |v| match &program.node(v).op {
        Op::Field(tuple, _) => Some(matches!(program.node(*tuple).op, Op::Reduce { .. })),
        Op::Last { .. } => Some(false),
        _ => None,
    })
}

/// Whether a value is a map of final states and of values that do not change in time.
fn is_last(stage: &Stage, time: Axis, value: Value) -> bool {
    let program = &stage.program;
    all(program, value, |v| match &program.node(v).op {
        Op::Last { value: inner, .. } | Op::First { value: inner, .. } => Some(is_state(stage, time, *inner)),
        Op::Field(..) => Some(false),
        _ => None,
    })
}

fn is_state(stage: &Stage, time: Axis, value: Value) -> bool {
    let program = &stage.program;
    all(program, value, |v| match &program.node(v).op {
        Op::Field(tuple, _) => Some(matches!(program.node(*tuple).op, Op::Scan { exclusive: false, .. })),
        Op::Last { .. } | Op::First { .. } => Some(false),
        Op::Param(_) | Op::Index(_) => Some(!program.node(v).axes.contains(time)),
        _ => None,
    })
}
