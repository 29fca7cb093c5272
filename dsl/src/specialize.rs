//! Programs for calls that leave something out.
//!
//! An absent optional parameter has its default everywhere, so its reads become a constant and the program is
//! simplified. Where the default is 0, as that of cotangents and tangents (`y.bar`, `y.dot`), it is a *structural zero*:
//! what is multiplied by it is not computed, so 0·∞ does not arise, and scans of nothing disappear.

mod zeros;

use crate::build::Builder;
use crate::copy::Copy;
use crate::elem::Elem;
use crate::ir::{Literal, Node, Op, Output, Program, Value};
use crate::simplify::{retain_params, simplify};
use crate::typing::TypeError;
use crate::verify::verify;

/// The program of a call: with its element type, the outputs that are wanted, and without the optional parameters that it
/// leaves out. Kernels are made from programs in this form, so those made ahead of time must come from it too.
pub fn for_call(program: &Program, elem: Elem, outputs: &[&str], absent: &[&str]) -> Program {
    let kept = keep_outputs(&program.instantiate(elem), outputs);
    absent.iter().fold(kept, |program, name| without_param(&program, name))
}

/// The program for calls without an optional parameter, which is no longer in the signature.
///
/// A program without a parameter of that name, or whose parameter is required, is only simplified; one that does not
/// verify is given back as it is.
pub fn without_param(program: &Program, name: &str) -> Program {
    if verify(program).is_err() {
        return program.clone();
    }
    let absent = program.param(name).and_then(|k| Some((k, program.params[k as usize].default?)));
    let Some((k, default)) = absent else { return simplify(program) };
    // Of whole numbers nothing is a structural zero: operators on them need not be linear.
    let vanishes = default.as_f64() == 0.0 && program.params[k as usize].elem.is_float();
    let specialised = if vanishes { zeros::with_zero(program, k) } else { with_constant(program, k, default) };
    match specialised {
        Ok(specialised) => retain_params(&simplify(&specialised), |other, _| other != k),
        Err(_) => program.clone(),
    }
}

/// The program with only the outputs of these names, simplified. Its signature keeps all parameters.
pub fn keep_outputs(program: &Program, names: &[&str]) -> Program {
    let mut kept = program.clone();
    kept.outputs.retain(|output| names.contains(&output.name.as_str()));
    simplify(&kept)
}

/// The program in which a parameter is read as a constant.
fn with_constant(program: &Program, k: u32, literal: Literal) -> Result<Program, TypeError> {
    let mut into = empty_like(program);
    let mut copy = Copy::of(program);
    for value in reads(program, k) {
        copy.set(value, into.constant(program.node(value).ty, literal)?);
    }
    let roots = copy.run(&mut into, &outputs(program))?;
    Ok(with_outputs(into, program, &roots))
}

/// A builder with the axes and parameters of a program.
fn empty_like(program: &Program) -> Builder {
    Builder::from_program(Program { operators: vec![], nodes: vec![], outputs: vec![], ..program.without_nodes() })
}

/// The values that read a parameter.
fn reads(program: &Program, k: u32) -> Vec<Value> {
    let reads = |(_, node): &(usize, &Node)| node.op == Op::Param(k);
    program.nodes.iter().enumerate().filter(reads).map(|(i, _)| Value(i as u32)).collect()
}

fn outputs(program: &Program) -> Vec<Value> {
    program.outputs.iter().map(|o| o.value).collect()
}

/// The finished program with the outputs of another, whose values these are.
fn with_outputs(builder: Builder, like: &Program, values: &[Value]) -> Program {
    let outputs = like.outputs.iter().zip(values).map(|(o, value)| Output { value: *value, ..o.clone() }).collect();
    Program { outputs, ..builder.finish() }
}
