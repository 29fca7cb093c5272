//! Operators made of operators: the part that some fields need, and the product of several.

use oplus_dsl::ir::{Domain, Field, Node, Op, Operator, Value};

/// The fields that the states of `used` fields depend on, themselves among them.
pub(super) fn closure(operator: &Operator, used: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let (n, dependencies) = (operator.fields.len(), operator.dependencies());
    let mut live = vec![false; n];
    used.into_iter().for_each(|k| live[k as usize] = true);
    for _ in 0..n {
        for k in 0..n {
            let feeds = |field: usize| (dependencies[field] >> k | dependencies[field] >> (k + n)) & 1 == 1;
            live[k] = live[k] || (0..n).any(|field| live[field] && feeds(field));
        }
    }
    (0..n as u32).filter(|k| live[*k as usize]).collect()
}

/// The product of operators, of which each has only these fields; every list must be closed under dependencies. Elements are the
/// fields of all side by side, and each operator combines its own. A single whole operator stays as it is.
pub(super) fn product(parts: &[(&Operator, &[u32])]) -> Operator {
    if let [(operator, fields)] = parts
        && fields.len() == operator.fields.len()
    {
        return (*operator).clone();
    }
    let total: usize = parts.iter().map(|(_, fields)| fields.len()).sum();
    let names: Vec<&str> = parts.iter().map(|(operator, _)| operator.name.as_str()).collect();
    let mut product = Operator {
        name: names.join("_"),
        fields: vec![],
        identity: vec![],
        body: vec![],
        combine: vec![],
        gauge: None,
        domain: Domain::default(),
    };
    for (i, (operator, fields)) in parts.iter().enumerate() {
        append(&mut product, operator, fields, total);
        if parts.len() > 1 {
            let own = product.fields.len() - fields.len();
            product.fields[own..].iter_mut().for_each(|f| f.name = format!("{}{i}", f.name));
        }
    }
    product
}

/// Adds the part of an operator to a product that will have `total` fields.
fn append(product: &mut Operator, operator: &Operator, fields: &[u32], total: usize) {
    let (first, n) = (product.fields.len() as u32, operator.fields.len() as u32);
    let slot = |field: u32| fields.iter().position(|f| *f == field).map(|i| first + i as u32);
    let mut values: Vec<Option<Value>> = vec![];
    let needed = needed(operator, fields);
    for (node, needed) in operator.body.iter().zip(needed) {
        let op = match &node.op {
            Op::Input(k) => slot(k % n).map(|s| Op::Input(if *k < n { s } else { s + total as u32 })),
            op => Some(op.map_operands(|v| values[v.0 as usize].unwrap_or(v))),
        };
        let value = op.filter(|_| needed).map(|op| {
            product.body.push(Node { op, ..node.clone() });
            Value(product.body.len() as u32 - 1)
        });
        values.push(value);
    }
    for field in fields.iter().map(|f| *f as usize) {
        let Field { name, ty } = &operator.fields[field];
        product.fields.push(Field { name: name.clone(), ty: *ty });
        product.identity.push(operator.identity[field]);
        product.combine.extend(values[operator.combine[field].0 as usize]);
    }
}

/// Whether the combinations of these fields need each node of the body.
fn needed(operator: &Operator, fields: &[u32]) -> Vec<bool> {
    let mut needed = vec![false; operator.body.len()];
    let mut stack: Vec<Value> = fields.iter().map(|f| operator.combine[*f as usize]).collect();
    while let Some(value) = stack.pop() {
        if !std::mem::replace(&mut needed[value.0 as usize], true) {
            stack.extend(operator.body[value.0 as usize].op.operands());
        }
    }
    needed
}
