//! Limits: conditions by which a row sees the columns up to one, or from one on.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Op, Program, Value};

use super::Limit;

/// A comparison of the column's index, with numbers added, with a value of the row.
pub(super) fn limit(program: &Program, column: Axis, term: Value) -> Option<Limit> {
    let Op::Binary(op, l, r) = program.node(term).op else { return None };
    let free = |v: Value| !program.node(v).axes.contains(column) && program.node(v).ty == Ty::I64;
    let (op, added, bound) = match op {
        _ if free(r) => (op, beside_index(program, column, l)?, r),
        Binary::Lt if free(l) => (Binary::Gt, beside_index(program, column, r)?, l),
        Binary::Le if free(l) => (Binary::Ge, beside_index(program, column, r)?, l),
        Binary::Gt if free(l) => (Binary::Lt, beside_index(program, column, r)?, l),
        Binary::Ge if free(l) => (Binary::Le, beside_index(program, column, r)?, l),
        _ => return None,
    };
    let (above, shift) = match op {
        Binary::Lt => (true, 0),
        Binary::Le => (true, 1),
        Binary::Gt => (false, 1),
        Binary::Ge => (false, 0),
        _ => return None,
    };
    let moved = added.into_iter().map(|(value, negated)| (value, !negated));
    let terms = [(bound, false)].into_iter().chain(moved).collect();
    Some(Limit { term, above, terms, shift })
}

/// The number that is added to the column's index, or subtracted.
fn beside_index(program: &Program, column: Axis, value: Value) -> Option<Vec<(Value, bool)>> {
    let free = |v: Value| !program.node(v).axes.contains(column);
    let (mut rest, mut all) = (value, vec![]);
    loop {
        let (inner, beside) = match program.node(rest).op {
            Op::Index(axis) if axis == column => break,
            Op::Binary(Binary::Add, x, y) if free(y) => (x, (y, false)),
            Op::Binary(Binary::Add, x, y) if free(x) => (y, (x, false)),
            Op::Binary(Binary::Sub, x, y) if free(y) => (x, (y, true)),
            _ => return None,
        };
        rest = inner;
        all.push(beside);
    }
    all.reverse();
    Some(all)
}
