//! Which two-way stages the schedule takes.

use super::parts::{Parts, live_field};
use crate::stage::Stage;
use oplus_dsl::Ty;

/// Sums over rows that a block has room for.
const ROW_SUMS: usize = 4;

/// Whether the walk of a stage that the schedule takes can be cut into segments of time.
pub fn can_segment(stage: &Stage) -> bool {
    Parts::of(stage).is_some_and(|parts| parts.is_linear())
}

/// `Err` says in words what of a two-way stage the schedule does not know.
pub fn supports(stage: &Stage) -> Result<(), String> {
    let Some(two_way) = stage.two_way() else {
        return Err("it has no two scans in opposite directions".to_owned());
    };
    let program = &stage.program;
    let wide = |ty: Ty| !matches!(ty, Ty::F32 | Ty::I32 | Ty::U32 | Ty::Bool);
    if let Some(param) = program.params.iter().find(|p| wide(p.elem.value())) {
        return Err(format!("`{}` has elements of {}", param.name, param.elem));
    }
    if stage.views.iter().any(|views| !views.is_empty()) {
        return Err("a parameter is displaced".to_owned());
    }
    let field = live_field(stage, &two_way).ok_or("its states have several fields")?;
    let operators = [(two_way.forward.operator, field), (two_way.back.operator, 1)];
    let own = |(operator, k): (oplus_dsl::ir::OperatorId, u32)| &program.operator(operator).fields[k as usize];
    if let Some(field) = operators.map(own).into_iter().find(|field| field.ty != Ty::F32) {
        return Err(format!("the field `{}` is {:?}", field.name, field.ty));
    }
    let parts = Parts::of(stage).ok_or("its states cannot be written out")?;
    if parts.sums_a_sum() {
        return Err("it sums sums over rows over the states".to_owned());
    }
    match parts.row_sums.len() {
        0..=ROW_SUMS => Ok(()),
        n => Err(format!("it has {n} sums over rows, more than {ROW_SUMS}")),
    }
}
