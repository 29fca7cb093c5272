//! Programs without some of their parameters.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Literal, Op, Program, Value};
use oplus_dsl::typing::TypeError;

/// The program with a constant, its default, in place of every parameter that `absent` names; one without a default
/// stays. Parameters keep their numbers.
pub fn without_params(program: &Program, absent: &[u32]) -> Result<Program, TypeError> {
    let mut builder = Builder::from_program(Program { nodes: vec![], outputs: vec![], ..program.clone() });
    let mut values: Vec<Value> = vec![];
    for node in &program.nodes {
        let default = match node.op {
            Op::Param(p) if absent.contains(&p) => program.params[p as usize].default,
            _ => None,
        };
        let value = match default {
            Some(literal) => builder.constant(node.ty, literal_of(literal, node.ty))?,
            None => builder.append(node.op.map_operands(|v| values[v.0 as usize]), node.ty, node.axes)?,
        };
        values.push(value);
    }
    for output in &program.outputs {
        builder.output(&output.name, &output.axes, output.elem, values[output.value.0 as usize])?;
    }
    Ok(builder.finish())
}

/// The literal as one of a type.
fn literal_of(literal: Literal, ty: Ty) -> Literal {
    match literal {
        Literal::Int(i) if ty.is_float() => Literal::Float(i as f64),
        other => other,
    }
}
