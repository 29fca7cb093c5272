//! Dead fields of operators.

use std::collections::HashMap;

use crate::ir::{Node, Op, Operator, OperatorId, Program, Value};

/// The program whose scans and reductions carry only the fields that a live value depends on.
///
/// The axes of tuples are not adjusted and operators are only added: a copy of the live nodes must follow.
pub(super) fn drop_dead(program: &Program) -> Program {
    let mut narrowed = program.clone();
    let live = live_fields(program);
    for (tuple, set) in &live {
        narrow(&mut narrowed, *tuple, *set);
    }
    for node in &mut narrowed.nodes {
        if let Op::Field(tuple, k) = &mut node.op {
            let set = live.get(tuple).copied().unwrap_or(u64::MAX);
            *k = (set & ((1 << *k) - 1)).count_ones();
        }
    }
    narrowed
}

/// For every scan or reduction that is live, the set of its live fields. Scans that go through the same states, one
/// inclusive and one exclusive, keep the same fields, so that they stay one scan for whoever runs them.
fn live_fields(program: &Program) -> HashMap<Value, u64> {
    let mut live = vec![false; program.nodes.len()];
    let mut fields: HashMap<Value, u64> = HashMap::new();
    program.outputs.iter().for_each(|o| live[o.value.0 as usize] = true);
    for i in (0..live.len()).rev() {
        if !live[i] {
            continue;
        }
        let op = &program.nodes[i].op;
        if let Op::Field(tuple, k) = op {
            *fields.entry(*tuple).or_default() |= 1 << k;
        }
        for v in needed(program, Value(i as u32), op, &mut fields) {
            live[v.0 as usize] = true;
        }
    }
    unite_pairs(program, &mut fields);
    fields
}

fn unite_pairs(program: &Program, fields: &mut HashMap<Value, u64>) {
    let mut pairs: HashMap<Op, u64> = HashMap::new();
    let states = |tuple: &Value| match program.node(*tuple).op.clone() {
        Op::Scan { axis, operator, elements, init, reverse, .. } => {
            Some(Op::Scan { axis, operator, elements, init, reverse, exclusive: false })
        }
        _ => None,
    };
    for (tuple, set) in fields.iter() {
        if let Some(states) = states(tuple) {
            *pairs.entry(states).or_default() |= set;
        }
    }
    for (tuple, set) in fields.iter_mut() {
        *set |= states(tuple).and_then(|states| pairs.get(&states)).copied().unwrap_or_default();
    }
}

/// The operands of a live node that are live: for a scan or a reduction those of its live fields only.
fn needed(program: &Program, value: Value, op: &Op, fields: &mut HashMap<Value, u64>) -> Vec<Value> {
    let (Op::Reduce { operator, .. } | Op::Scan { operator, .. }) = op else { return op.operands().into_vec() };
    let operator = program.operator(*operator);
    let set = fields.entry(value).or_default();
    *set = closed(operator, *set);
    let n = operator.fields.len();
    let operands = op.operands().into_iter().enumerate();
    operands.filter(|(k, _)| *set >> (k % n) & 1 == 1).map(|(_, v)| v).collect()
}

/// A set of fields with all fields that their combination depends on.
fn closed(operator: &Operator, mut set: u64) -> u64 {
    let n = operator.fields.len();
    let dependencies = operator.dependencies();
    for _ in 0..n {
        let live = dependencies.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1);
        let inputs = live.fold(0, |all, (_, inputs)| all | inputs);
        set |= (inputs | inputs >> n) & ((1 << n) - 1);
    }
    set
}

/// Restricts a scan or a reduction to a set of fields.
fn narrow(program: &mut Program, tuple: Value, set: u64) {
    let (Op::Reduce { operator, .. } | Op::Scan { operator, .. }) = &program.node(tuple).op else { return };
    let own = program.operator(*operator);
    if set.count_ones() as usize == own.fields.len() {
        return;
    }
    let narrowed = restricted(own, set);
    let id = OperatorId(program.operators.len() as u32);
    program.operators.push(narrowed);
    if let Op::Reduce { operator, elements, .. } = &mut program.nodes[tuple.0 as usize].op {
        *operator = id;
        *elements = chosen(elements, set);
    } else if let Op::Scan { operator, elements, init, .. } = &mut program.nodes[tuple.0 as usize].op {
        *operator = id;
        *elements = chosen(elements, set);
        *init = chosen(init, set);
    }
}

/// The operator on a set of fields that is closed under dependencies.
fn restricted(operator: &Operator, set: u64) -> Operator {
    let n = operator.fields.len() as u32;
    let place = |k: u32| (set & ((1 << k) - 1)).count_ones();
    let fields = chosen(&operator.fields, set);
    let renumbered = |node: &Node| {
        let op = match node.op {
            Op::Input(k) if k < n => Op::Input(place(k)),
            Op::Input(k) => Op::Input(set.count_ones() + place(k - n)),
            ref op => op.clone(),
        };
        Node { op, ..node.clone() }
    };
    Operator {
        name: operator.name.clone(),
        identity: chosen(&operator.identity, set),
        body: operator.body.iter().map(renumbered).collect(),
        combine: chosen(&operator.combine, set),
        gauge: operator.gauge.filter(|m| set >> m & 1 == 1).map(place),
        domain: operator.domain.restricted(set, place),
        fields,
    }
}

/// The items whose index is in the set.
fn chosen<T: Clone>(items: &[T], set: u64) -> Vec<T> {
    items.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1).map(|(_, item)| item.clone()).collect()
}
