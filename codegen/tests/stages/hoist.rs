//! Work taken out of the loop over steps and states.

use oplus_codegen::plan::cuts;
use oplus_codegen::stage::Stage;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Binary, Literal, Op, Program, Unary, Value};

/// The stages of a standard model that walk time with their states summed away.
fn walks(name: &str) -> Vec<(Stage, Program)> {
    let models = oplus_front::model_programs();
    let model = models.into_iter().find(|program| program.name == name).expect("a model").instantiate(Elem::F32);
    let stages = cuts(&model).expect("cuts").all().flat_map(|cut| cut.stages).collect::<Vec<_>>();
    let walk = |stage: Stage| stage.kind().walk().ok().map(|walk| walk.program.clone()).map(|program| (stage, program));
    stages.into_iter().filter_map(walk).collect()
}

/// Decays are powers of two. Their factor log₂e is multiplied with the rate, and not at every step.
#[test]
fn a_constant_factor_of_a_decay_is_not_multiplied_at_every_step() {
    for name in ["selective_scan", "selective_scan_softplus", "mamba"] {
        let walks = walks(name);
        assert!(!walks.is_empty(), "{name}");
        for (stage, program) in walks {
            let time = stage.axis().expect("an axis");
            let is_constant = |v: Value| matches!(program.node(v).op, Op::Const(Literal::Float(_)));
            let powers = program.nodes.iter().filter_map(|node| match node.op {
                Op::Unary(Unary::Exp2, exponent) if node.axes.contains(time) => Some(exponent),
                _ => None,
            });
            let exponents: Vec<Value> = powers.collect();
            assert!(!exponents.is_empty(), "{name}");
            for exponent in exponents {
                let mut open = vec![exponent];
                while let Some(value) = open.pop() {
                    let node = program.node(value);
                    let Op::Binary(Binary::Mul, x, y) = node.op else { continue };
                    let at_every_step = node.axes.contains(time);
                    assert!(!at_every_step || !is_constant(x) && !is_constant(y), "{name}: {program}");
                    open.extend([x, y]);
                }
            }
        }
    }
}
