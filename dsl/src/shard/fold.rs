//! Folds: programs that combine the totals of several ranks.

use crate::build::Direction;
use crate::elem::Ty;
use crate::ir::{Axis, Binary, Literal, Op, Value};
use crate::typing::TypeError;

use super::divide::Divide;
use super::level::is_initial;
use super::local::{Local, named, named_field, stored};
use super::{Fold, RANKS, Ranks, SIZE};

/// The state before the shard: init ⊕ the totals of the ranks that the scan visits before this one.
pub(super) fn of_scan(divide: &Divide<'_>, scan: Value) -> Result<Fold, TypeError> {
    let Op::Scan { operator, reverse, .. } = divide.program.node(scan).op else { unreachable!("it is a scan") };
    let mut folding = Folding::new(divide, scan)?;
    let states = folding.states(scan)?;
    let fields = &divide.program.operator(operator).fields;
    let carried = fields.iter().zip(divide.state_axes(scan)).zip(states).zip(divide.live_fields(scan));
    for (((field, axes), state), _) in carried.filter(|(_, is_live)| *is_live) {
        let name = named_field("carry", scan, &field.name);
        folding.local.send(name, (axes.iter().collect(), stored(field.ty)), state);
    }
    Ok(folding.finish(if reverse { Ranks::After } else { Ranks::Before }))
}

/// The total of all ranks.
pub(super) fn of_reduce(divide: &Divide<'_>, reduce: Value) -> Result<Fold, TypeError> {
    let Op::Reduce { operator, .. } = divide.program.node(reduce).op else { unreachable!("it is a reduction") };
    let mut folding = Folding::new(divide, reduce)?;
    let id = folding.local.operator(operator)?;
    let totals = folding.local.into.reduce(folding.ranks, id, &folding.totals.clone())?;
    let fields = &divide.program.operator(operator).fields;
    for ((field, axes), total) in fields.iter().zip(divide.total_axes(reduce)).zip(totals) {
        let name = named_field("sum", reduce, &field.name);
        folding.local.send(name, (axes.iter().collect(), stored(field.ty)), total);
    }
    Ok(folding.finish(Ranks::All))
}

/// The last state of a scan: init ⊕ the totals of all ranks.
pub(super) fn of_last_state(divide: &Divide<'_>, value: Value, (scan, field): (Value, u32)) -> Result<Fold, TypeError> {
    let (Op::Last { empty, .. } | Op::First { empty, .. }) = divide.program.node(value).op else {
        unreachable!("it is an end")
    };
    let mut folding = Folding::new(divide, scan)?;
    let mut state = folding.states(scan)?[field as usize];
    if !is_initial(divide.program, scan, field, empty) {
        let empty = folding.local.images(&[empty])?[0];
        let into = &mut folding.local;
        let (size, zero) = (into.position(SIZE)?, into.into.constant(Ty::I64, Literal::Int(0))?);
        let is_empty = into.into.binary(Binary::Eq, size, zero)?;
        state = into.into.select(is_empty, empty, state)?;
    }
    let node = divide.program.node(value);
    folding.local.send(named("state", value), (node.axes.iter().collect(), stored(node.ty)), state);
    Ok(folding.finish(Ranks::All))
}

/// A fold under construction.
struct Folding<'a> {
    divide: &'a Divide<'a>,
    local: Local<'a>,
    ranks: Axis,
    /// The gathered totals, one value per field.
    totals: Vec<Value>,
    gathered: Vec<String>,
}

impl<'a> Folding<'a> {
    fn new(divide: &'a Divide<'a>, value: Value) -> Result<Folding<'a>, TypeError> {
        let mut local = Local::new(divide, &format!("{}.fold{}", divide.program.name, value.0));
        let ranks = local.into.axis(RANKS)?;
        let (mut totals, mut gathered) = (vec![], vec![]);
        let (Op::Scan { operator, .. } | Op::Reduce { operator, .. }) = divide.program.node(value).op else {
            unreachable!("only scans and reductions have totals")
        };
        let fields = &divide.program.operator(operator).fields;
        for (field, axes) in fields.iter().zip(divide.total_axes(value)) {
            let name = named_field("total", value, &field.name);
            let axes: Vec<Axis> = [ranks].into_iter().chain(axes.iter()).collect();
            totals.push(local.param(&name, &axes, stored(field.ty))?);
            gathered.push(name);
        }
        Ok(Folding { divide, local, ranks, totals, gathered })
    }

    /// init ⊕ all totals in the order in which the scan visits their ranks, one value per field.
    fn states(&mut self, scan: Value) -> Result<Vec<Value>, TypeError> {
        let Op::Scan { operator, init, reverse, .. } = &self.divide.program.node(scan).op else {
            unreachable!("it is a scan")
        };
        let own = self.divide.program.operator(*operator);
        let identity = own.fields.iter().zip(&own.identity);
        let init = match init[..] {
            [] => identity.map(|(field, x)| self.local.into.constant(field.ty, *x)).collect::<Result<Vec<_>, _>>()?,
            _ => self.local.images(init)?,
        };
        let id = self.local.operator(*operator)?;
        let direction = Direction { reverse: *reverse, exclusive: false };
        let into = &mut self.local.into;
        let states = into.scan(self.ranks, id, &self.totals, &init, direction)?;
        let last = states.into_iter().zip(init).map(|(state, init)| match reverse {
            true => into.first(self.ranks, state, init),
            false => into.last(self.ranks, state, init),
        });
        last.collect()
    }

    fn finish(self, ranks: Ranks) -> Fold {
        Fold { program: self.local.finish(), gathered: self.gathered, ranks }
    }
}
