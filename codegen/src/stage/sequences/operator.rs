//! The operator that a segmented one was made of.

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{AxisSet, Binary, Op, Operator, Value};

/// A value of the body: the flag of an operand, which is never set, or a value without flags.
#[derive(Clone, Copy)]
enum Place {
    Unset,
    At(Value),
}

/// The operator without its first field, the flag of [`oplus_dsl::segmented`], where that is never set; `None` where it is more than a flag.
pub(super) fn unsegmented(operator: &Operator) -> Option<Operator> {
    let n = operator.fields.len() as u32;
    let mut body = Builder::body(operator.fields[1..].to_vec());
    let mut places: Vec<Place> = vec![];
    for node in &operator.body {
        let place = |v: Value| places[v.0 as usize];
        let at = |v: Value| if let Place::At(value) = place(v) { Some(value) } else { None };
        let is_unset = |v: Value| matches!(place(v), Place::Unset);
        let own = match node.op {
            Op::Input(k) if k % n == 0 => Place::Unset,
            Op::Input(k) if k < n => Place::At(body.input(k - 1).ok()?),
            Op::Input(k) => Place::At(body.input(k - 2).ok()?),
            Op::Select(condition, _, other) if is_unset(condition) => place(other),
            Op::Binary(Binary::Or, x, y) if is_unset(x) => place(y),
            Op::Binary(Binary::Or, x, y) if is_unset(y) => place(x),
            ref op => {
                let known = op.operands().iter().all(|v| at(*v).is_some());
                let moved = op.map_operands(|v| at(v).unwrap_or(v));
                Place::At(known.then(|| body.append(moved, node.ty, AxisSet::EMPTY).ok()).flatten()?)
            }
        };
        places.push(own);
    }
    let combine = operator.combine[1..].iter().map(|v| match places[v.0 as usize] {
        Place::At(value) => Some(value),
        Place::Unset => None,
    });
    let combine: Vec<Value> = combine.collect::<Option<_>>()?;
    let (name, gauge) = (operator.name.strip_prefix("Segmented")?, operator.gauge.map(|k| k - 1));
    let plain = body.finish_operator(name, operator.identity[1..].to_vec(), &combine, gauge).ok()?;
    Some(Operator { domain: operator.domain.renumbered(|k| k - 1), ..plain })
}
