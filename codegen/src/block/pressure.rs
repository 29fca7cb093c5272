//! The registers that an operator takes in a thread, counted in the program.

use super::carry::words;
use super::reads::displacements;
use crate::stage::Stage;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Node, Op};

/// Registers of 32 bits that one element of a scan takes in a thread: its parameters, or its fields if those are more.
pub fn words_per_element(stage: &Stage) -> u32 {
    let Some(scan) = stage.scan() else { return stage.program.params.len() as u32 };
    let outputs = stage.program.outputs.iter().map(|o| o.value);
    let params = displacements(stage, scan.axis, outputs.chain(scan.elements.iter().copied())).into_keys();
    let params: Vec<_> = params.map(|p| stage.program.params[p as usize].elem.value()).collect();
    let fields: Vec<_> = stage.program.operator(scan.operator).fields.iter().map(|f| f.ty).collect();
    words(&params).max(words(&fields)).max(1)
}

/// Registers that intermediate values take while elements are computed and combined: many for elementary functions of
/// the operator, some where values of several registers are chosen by comparisons, as the larger of two `f64` is.
pub fn temporaries(stage: &Stage) -> u32 {
    use oplus_dsl::ir::Unary::{Cos, Exp, Exp2, Ln, Log1p, Sin, Tanh};
    let Some(scan) = stage.scan() else { return 0 };
    let body = stage.program.operator(scan.operator).body.iter();
    let function = |node: &Node| matches!(node.op, Op::Unary(Exp | Exp2 | Ln | Log1p | Sin | Cos | Tanh, _));
    let is_extreme = |node: &Node| matches!(node.op, Op::Binary(Binary::Min | Binary::Max, ..)) && node.ty == Ty::F64;
    let chooses = |node: &Node| matches!(node.op, Op::Select(..)) || is_extreme(node);
    if body.clone().any(function) {
        32
    } else if words_per_element(stage) > 2 && stage.program.nodes.iter().chain(body).any(chooses) {
        16
    } else {
        0
    }
}

/// Conversions while elements are combined, of fields of one type for those of another.
pub fn conversions(stage: &Stage) -> u32 {
    let body = stage.scan().map(|scan| &stage.program.operator(scan.operator).body);
    body.into_iter().flatten().filter(|node| matches!(node.op, Op::Convert(..))).count() as u32
}
