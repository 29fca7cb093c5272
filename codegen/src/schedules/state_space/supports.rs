//! Which stages the states schedule takes.

use super::tiles::is_point;
use crate::stage::Stage;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Op, Value};
use oplus_dsl::walk::all;

/// `Err` says in words what of a stage the states schedule does not know.
pub fn supports(stage: &Stage) -> Result<(), String> {
    let (Some(scan), Some(state)) = (stage.scan(), stage.state_axis()) else {
        return Err("it has no sum over an axis of its states".to_owned());
    };
    let program = &stage.program;
    let wide = |ty: Ty| !matches!(ty, Ty::F32 | Ty::I32 | Ty::U32 | Ty::Bool);
    if let Some(param) = program.params.iter().find(|p| wide(p.elem.value())) {
        return Err(format!("`{}` has elements of {}", param.name, param.elem));
    }
    if let Some(field) = program.operators.iter().flat_map(|o| &o.fields).find(|f| wide(f.ty)) {
        return Err(format!("the field `{}` is {:?}", field.name, field.ty));
    }
    if stage.views.iter().any(|views| !views.is_empty()) {
        return Err("a parameter is displaced".to_owned());
    }
    for (k, output) in program.outputs.iter().enumerate() {
        let known =
            if stage.is_final(k) { is_last(stage, scan.axis, output.value) } else { is_drained(stage, output.value) };
        if !known || !stage.is_final(k) && output.axes.contains(&state) {
            return Err(format!("`{}` is neither a map of sums nor of final states", output.name));
        }
    }
    let sums = program
        .nodes
        .iter()
        .filter_map(|n| if let Op::Reduce { elements, .. } = &n.op { Some(elements[0]) } else { None });
    if !scan.elements.iter().chain(scan.init).copied().chain(sums).all(|v| is_here(stage, v)) {
        return Err("it reads elsewhere than at the point".to_owned());
    }
    let position = |op: &Op| matches!(op, Op::Shift { .. } | Op::First { .. } | Op::Starts { .. });
    let backward = |op: &Op| matches!(op, Op::First { value, .. } if scan.reverse && !is_point(program, *value));
    if program.nodes.iter().any(|n| position(&n.op) && !backward(&n.op)) {
        return Err("it reads elsewhere than at the point".to_owned());
    }
    Ok(())
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
fn is_drained(stage: &Stage, value: Value) -> bool {
    let program = &stage.program;
    all(program, value, |v| match &program.node(v).op {
        Op::Field(tuple, _) => Some(matches!(program.node(*tuple).op, Op::Reduce { .. })),
        Op::Last { .. } => Some(false),
        _ => None,
    })
}

/// Whether a value is a map of final states and of what does not change in time.
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
