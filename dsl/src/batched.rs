//! Programs with one more axis: a program maps over it what it would else do once.

use crate::elem::Elem;
use crate::ir::{Axis, AxisSet, Op, Program, Value};
use crate::verify::verify;

/// The program with one more axis, its first, which the parameters whose place in `mapped` is true have before their own, and with
/// them all values that depend on them. The second part says of every output whether it has the axis, before its own.
///
/// Each index of the axis has the outputs that the program itself gives for the parameters at that index.
///
/// # Errors
/// Why the result is not a program, in words: segments, for example, are those of all indices.
pub fn batched(program: &Program, mapped: &[bool]) -> Result<(Program, Vec<bool>), String> {
    let (mut wider, axis) = (with_first_axis(program, unused_name(program)), Axis(0));
    for (param, _) in wider.params.iter_mut().zip(mapped).filter(|(_, mapped)| **mapped) {
        param.axes.insert(0, axis);
    }
    let added = AxisSet::from_iter([axis]);
    for i in 0..wider.nodes.len() {
        if depends(&wider, i, mapped, axis) {
            wider.nodes[i].axes = wider.nodes[i].axes.union(added);
        }
    }
    let has = |value: Value| wider.node(value).axes.contains(axis);
    let outputs: Vec<bool> = program.outputs.iter().map(|output| has(output.value)).collect();
    for (output, _) in wider.outputs.iter_mut().zip(&outputs).filter(|(_, has)| **has) {
        output.axes.insert(0, axis);
    }
    verify(&wider).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok((wider, outputs))
}

/// The program with an axis before its others, which nothing has.
fn with_first_axis(program: &Program, name: String) -> Program {
    let mut wider = program.clone();
    let next = |axis: Axis| Axis(axis.0 + 1);
    wider.axes.insert(0, name);
    let tensors = wider.params.iter_mut().map(|p| &mut p.axes).chain(wider.outputs.iter_mut().map(|o| &mut o.axes));
    tensors.flatten().for_each(|axis| *axis = next(*axis));
    for node in &mut wider.nodes {
        node.axes = node.axes.iter().map(next).collect();
        node.op.map_axes(next);
    }
    wider
}

/// Whether a node's value varies along the axis, that of earlier ones being known.
fn depends(program: &Program, i: usize, mapped: &[bool], axis: Axis) -> bool {
    let has = |value: &Value| program.node(*value).axes.contains(axis);
    match &program.nodes[i].op {
        Op::Param(k) => mapped.get(*k as usize).copied().unwrap_or(false),
        // A field has the axes of what it is combined from, not those of all fields.
        Op::Field(tuple, k) => match &program.node(*tuple).op {
            Op::Scan { operator, elements, init, .. } => {
                let own = |at: usize| {
                    let start = init.get(at).map_or(AxisSet::default(), |v| program.node(*v).axes);
                    program.node(elements[at]).axes.union(start)
                };
                let given: Vec<AxisSet> = (0..elements.len()).map(own).collect();
                program.operator(*operator).field_axes(&given)[*k as usize].contains(axis)
            }
            Op::Reduce { operator, elements, .. } => {
                let given: Vec<AxisSet> = elements.iter().map(|v| program.node(*v).axes).collect();
                program.operator(*operator).field_axes(&given)[*k as usize].contains(axis)
            }
            _ => has(tuple),
        },
        op => op.operands().iter().any(has),
    }
}

/// A name that no axis has.
fn unused_name(program: &Program) -> String {
    let names = std::iter::once("V".to_owned()).chain((2..).map(|n| format!("V{n}")));
    let free = |name: &String| program.axis(name).is_none() && program.param(name).is_none();
    names.into_iter().find(free).unwrap_or_default()
}

/// A gradient with such parameters of the program that it belongs to as tell the sizes and the type that its own required
/// parameters leave open, so that it can be called by itself.
#[must_use]
pub fn with_axes_of(gradient: &Program, forward: &Program) -> Program {
    let mut complete = gradient.clone();
    for (at, name) in gradient.axes.iter().enumerate() {
        let axis = Axis(at as u32);
        let known = complete.params.iter().any(|p| p.default.is_none() && p.axes.contains(&axis));
        let source = forward
            .axis(name)
            .and_then(|axis| forward.params.iter().find(|p| p.default.is_none() && p.axes.contains(&axis)));
        if let (false, Some(param)) = (known, source) {
            add(&mut complete, forward, param.name.as_str());
        }
    }
    let is_call =
        |program: &Program| program.params.iter().find(|p| p.default.is_none() && p.elem == Elem::Call).cloned();
    if let (None, Some(param)) = (is_call(&complete), is_call(forward)) {
        add(&mut complete, forward, &param.name);
    }
    complete
}

/// Adds a parameter of the forward program, if all its axes are axes of the gradient.
fn add(gradient: &mut Program, forward: &Program, name: &str) {
    let Some(param) = forward.params.iter().find(|p| p.name == name) else { return };
    let axes: Vec<Axis> = param.axes.iter().map(|axis| axis_of(gradient, forward.axis_name(*axis))).collect();
    gradient.params.push(crate::ir::Param { axes, ..param.clone() });
}

/// The axis of that name, which is added where there is none.
fn axis_of(program: &mut Program, name: &str) -> Axis {
    program.axis(name).unwrap_or_else(|| {
        program.axes.push(name.to_owned());
        Axis(program.axes.len() as u32 - 1)
    })
}
