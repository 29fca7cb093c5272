//! Where the state of each scan comes in and goes out.

use std::collections::HashSet;

use crate::ir::{Axis, MatrixScan, Op, Operator, Param, Program, Value};
use crate::uses::fields_read;

use super::delays::{is_given, unbroadcast};
use super::{State, StepError};

/// The tensors that one step must hand to the next, by the parameters and outputs of the program.
pub(super) fn states(program: &Program, axis: Axis) -> Result<Vec<State>, StepError> {
    let (mut states, read): (Vec<State>, _) = (vec![], fields_read(program));
    for (i, node) in program.nodes.iter().enumerate() {
        if let Op::MatrixScan(scan) = &node.op {
            add(&mut states, matrix_state(program, scan)?)?;
        }
        if let Op::Shift { axis: along, by, value, fill } = node.op
            && along == axis
            && is_given(program, by, fill)
        {
            add(&mut states, shifted_state(program, axis, value, fill)?)?;
        }
        let Op::Scan { operator, init, .. } = &node.op else { continue };
        let (scan, operator) = (Value(i as u32), program.operator(*operator));
        for k in carried(&read, scan, operator) {
            let (name, field) = (operator.name.clone(), operator.fields[k].name.clone());
            let Some(param) = init.get(k).and_then(|value| param(program, *value)) else {
                return Err(StepError::NoStateIn { operator: name, field });
            };
            let is_state = |value: Value| {
                matches!(program.node(value).op, Op::Field(tuple, field)
                    if field as usize == k && gives_states_of(&program.node(tuple).op, &node.op))
            };
            let Some(output) = output(program, axis, param, is_state) else {
                return Err(StepError::NoStateOut { operator: name, field });
            };
            add(&mut states, State { param: param.name.clone(), output })?;
        }
    }
    match states.iter().find(|state| is_read_elsewhere(program, &state.param)) {
        Some(state) => Err(StepError::StateRead { param: state.param.clone() }),
        None => Ok(states),
    }
}

/// Adds a state; a parameter begins one only.
fn add(states: &mut Vec<State>, state: State) -> Result<(), StepError> {
    match states.iter().find(|known| known.param == state.param) {
        Some(known) if *known != state => return Err(StepError::SharedState { param: state.param }),
        Some(_) => {}
        None => states.push(state),
    }
    Ok(())
}

/// The state of a recurrence of matrices.
fn matrix_state(program: &Program, scan: &MatrixScan) -> Result<State, StepError> {
    let (operator, field) = (|| "matrices".to_owned(), || "S".to_owned());
    let Some(param) = param(program, scan.init) else {
        return Err(StepError::NoStateIn { operator: operator(), field: field() });
    };
    let states = MatrixScan { exclusive: false, ..scan.clone() };
    let is_state = |value: Value| matches!(&program.node(value).op, Op::MatrixScan(of) if **of == states);
    match output(program, scan.axis, param, is_state) {
        Some(output) => Ok(State { param: param.name.clone(), output }),
        None => Err(StepError::NoStateOut { operator: operator(), field: field() }),
    }
}

/// The state of a shift by 1 whose first value is a parameter: the last element.
fn shifted_state(program: &Program, axis: Axis, value: Value, fill: Value) -> Result<State, StepError> {
    let missing = StepError::NoElementOut { axis: program.axis_name(axis).to_owned() };
    let Some(param) = param(program, fill) else { return Err(missing) };
    let is_last = |value_out: Value| match program.node(stripped(program, value_out)).op {
        Op::Last { axis: along, value: last, .. } => {
            along == axis && unbroadcast(program, last) == unbroadcast(program, value)
        }
        _ => false,
    };
    let found = program.outputs.iter().find(|output| output.elem == param.elem && is_last(output.value));
    found.map(|output| State { param: param.name.clone(), output: output.name.clone() }).ok_or(missing)
}

/// The fields of a scan's state that later states need: what the fields that are read depend on, left of `combine`.
fn carried(read: &HashSet<(Value, u32)>, scan: Value, operator: &Operator) -> Vec<usize> {
    let (n, dependencies) = (operator.fields.len(), operator.dependencies());
    let is_read = |k: usize| read.contains(&(scan, k as u32));
    let mut carried = vec![false; n];
    for _ in 0..n {
        let needed: Vec<usize> = (0..n).filter(|k| is_read(*k) || carried[*k]).collect();
        (0..n).for_each(|k| carried[k] = needed.iter().any(|field| dependencies[*field] >> k & 1 == 1));
    }
    (0..n).filter(|k| carried[*k]).collect()
}

/// The value that is converted and broadcast to this one.
pub(super) fn stripped(program: &Program, mut value: Value) -> Value {
    while let Op::Convert(_, from) | Op::Broadcast(from) = program.node(value).op {
        value = from;
    }
    value
}

/// The parameter that a value is.
pub(super) fn param(program: &Program, value: Value) -> Option<&Param> {
    match program.node(stripped(program, value)).op {
        Op::Param(k) => program.params.get(k as usize),
        _ => None,
    }
}

/// The output that is the last of the states that `is_state` knows, or all of them, and that loses nothing on the way to a parameter.
fn output(program: &Program, axis: Axis, param: &Param, is_state: impl Fn(Value) -> bool) -> Option<String> {
    let ends_in = |value: Value| {
        is_state(match program.node(stripped(program, value)).op {
            Op::Last { axis: along, value, .. } if along == axis => stripped(program, value),
            _ => stripped(program, value),
        })
    };
    let found = program.outputs.iter().find(|output| output.elem == param.elem && ends_in(output.value));
    found.map(|output| output.name.clone())
}

/// Whether a scan gives, after each element, the states of another one.
fn gives_states_of(candidate: &Op, scan: &Op) -> bool {
    match (candidate, scan) {
        (
            Op::Scan { operator, elements, init, exclusive: false, .. },
            Op::Scan { operator: of, elements: from, init: start, .. },
        ) => operator == of && elements == from && init == start,
        _ => false,
    }
}

/// Whether a parameter is anything else than the state before the first step.
fn is_read_elsewhere(program: &Program, param: &str) -> bool {
    let is_it = |value: Value| self::param(program, value).is_some_and(|p| p.name == param);
    let in_nodes = program.nodes.iter().any(|node| match &node.op {
        Op::MatrixScan(scan) => MatrixScan { init: scan.input, ..*scan.clone() }.operands().into_iter().any(is_it),
        Op::Scan { elements, .. } => elements.iter().any(|value| is_it(*value)),
        Op::Last { value, .. } | Op::First { value, .. } => is_it(*value),
        Op::Shift { by, value, fill, .. } if is_given(program, *by, *fill) => is_it(*value),
        Op::Convert(..) | Op::Broadcast(_) => false,
        op => op.operands().into_iter().any(is_it),
    });
    in_nodes || program.outputs.iter().any(|output| is_it(output.value))
}
