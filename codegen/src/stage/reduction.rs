//! Reductions of a program, and the sums of floats among them.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Literal, Op, Operator, OperatorId, Program, Value};

/// A reduction of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction<'p> {
    /// The axis that it is over.
    pub axis: Axis,
    pub operator: &'p Operator,
    /// The values that are reduced, field by field.
    pub elements: &'p [Value],
}

impl<'p> Reduction<'p> {
    /// The reduction that gives a tuple.
    pub(super) fn of(program: &'p Program, tuple: Value) -> Option<Reduction<'p>> {
        let Op::Reduce { axis, operator, elements } = &program.node(tuple).op else { return None };
        Some(Reduction { axis: *axis, operator: program.operator(*operator), elements })
    }
}

/// A sum of floats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    /// The axis that it is over.
    pub axis: Axis,
    pub operator: OperatorId,
    /// The value that is summed.
    pub element: Value,
}

impl Sum {
    /// The sum that gives a tuple.
    pub(super) fn of(program: &Program, tuple: Value) -> Option<Sum> {
        let Op::Reduce { axis, operator, elements } = &program.node(tuple).op else { return None };
        is_sum(program.operator(*operator)).then(|| Sum { axis: *axis, operator: *operator, element: elements[0] })
    }

    /// The sum that gives a value, which is the only field of its tuple.
    pub(super) fn of_field(program: &Program, value: Value) -> Option<Sum> {
        let Op::Field(tuple, 0) = program.node(value).op else { return None };
        Sum::of(program, tuple)
    }
}

/// Whether an operator is the sum of floats.
pub(super) fn is_sum(operator: &Operator) -> bool {
    let input = |v: Value| matches!(operator.body[v.0 as usize].op, Op::Input(_));
    let zero = matches!(operator.identity[..], [Literal::Float(x)] if x == 0.0);
    let added = |v: Value| match operator.body[v.0 as usize].op {
        Op::Binary(Binary::Add, l, r) => l != r && input(l) && input(r),
        _ => false,
    };
    zero && matches!(operator.combine[..], [v] if added(v)) && operator.fields[0].ty.is_float()
}

/// Whether an operator is the sum of `f32`.
pub(super) fn is_sum_of_f32(operator: &Operator) -> bool {
    is_sum(operator) && operator.fields[0].ty == Ty::F32
}
