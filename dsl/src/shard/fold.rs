//! Folds: programs that combine the totals of several ranks.

use crate::build::{Builder, Direction};
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, Binary, Field, Literal, Op, Operator, Value};
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

/// The elements that are taken along the axis: of each one rank has it, and the others send zero.
pub(super) fn of_gather(divide: &Divide<'_>, value: Value) -> Result<Fold, TypeError> {
    let node = divide.program.node(value);
    let mut local = Local::new(divide, &format!("{}.fold{}", divide.program.name, value.0));
    let (ranks, axes) = (local.into.axis(RANKS)?, node.axes.iter().collect::<Vec<_>>());
    let (name, elem) = (named("elements", value), stored(node.ty));
    let gathered = local.param(&name, &[&[ranks], &axes[..]].concat(), elem)?;
    let (is_bool, ty) = (node.ty == Ty::Bool, local.into.ty(gathered)?);
    let numbers = if is_bool { local.into.convert(Elem::I64, gathered)? } else { gathered };
    let sum = local.into.operator(sum(if is_bool { Ty::I64 } else { ty })?);
    let taken = local.into.reduce(ranks, sum, &[numbers])?[0];
    let taken = if is_bool {
        let zero = local.into.constant(Ty::I64, Literal::Int(0))?;
        local.into.binary(Binary::Ne, taken, zero)?
    } else {
        taken
    };
    local.send(named("taken", value), (axes, elem), taken);
    Ok(Fold { program: local.finish(), gathered: vec![name], ranks: Ranks::All })
}

/// Sums of numbers.
fn sum(ty: Ty) -> Result<Operator, TypeError> {
    let mut body = Builder::body(vec![Field { name: "s".to_owned(), ty }]);
    let (l, r) = body.inputs()?;
    let sum = body.binary(Binary::Add, l[0], r[0])?;
    body.finish_operator("Sum", vec![Literal::zero(ty)], &[sum], None)
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
            let name = named_field("total", divide.leader(value), &field.name);
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
