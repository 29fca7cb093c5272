//! Whether values of a program are the same after all simplification.

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Output, Program, Value};
use oplus_dsl::packed::without_inverses;
use oplus_dsl::simplify::simplified;

/// Whether the values of each pair are the same.
pub(super) fn alike(b: &Builder, pairs: &[[Value; 2]]) -> bool {
    let mut program = b.program().clone();
    program.outputs = pairs.iter().flatten().enumerate().map(|(k, value)| output(&program, k, *value)).collect();
    let program = simplified(&without_inverses(&program));
    program.outputs.chunks(2).all(|two| two[0].value == two[1].value)
}

fn output(program: &Program, number: usize, value: Value) -> Output {
    let node = program.node(value);
    let elem = node.ty.elem().unwrap_or(oplus_dsl::Elem::F32);
    Output { name: format!("v{number}"), axes: node.axes.iter().collect(), elem, value }
}
