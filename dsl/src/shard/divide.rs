//! The phases of a divided program.

use std::collections::HashSet;

use crate::elem::Elem;
use crate::ir::{Axis, AxisSet, Op, Program, Value};
use crate::simplify::{prune_params, simplify};
use crate::specialize::keep_outputs;
use crate::typing::TypeError;

use super::fold;
use super::level::{Exchange, Levels};
use super::local::{Local, named, named_border, stored};
use super::scans::leader;
use super::{Fold, Phase, Pick, Which};

/// A program and the axis along which it is divided.
pub(super) struct Divide<'a> {
    pub(super) program: &'a Program,
    pub(super) axis: Axis,
    pub(super) levels: Levels,
}

impl<'a> Divide<'a> {
    pub(super) fn of(program: &'a Program, axis: Axis) -> Result<Divide<'a>, TypeError> {
        Ok(Divide { program, axis, levels: Levels::of(program, axis) })
    }

    /// Whether a tuple is the total of all ranks.
    pub(super) fn is_total(&self, tuple: Value) -> bool {
        self.levels.exchange[tuple.0 as usize] == Some(Exchange::Reduce)
    }

    /// The name of a field of a scan or a reduction.
    pub(super) fn field(&self, tuple: Value, k: u32) -> &str {
        match &self.program.node(tuple).op {
            Op::Scan { operator, .. } | Op::Reduce { operator, .. } => {
                &self.program.operator(*operator).fields[k as usize].name
            }
            _ => "",
        }
    }

    /// Axes and element type of a value without the sharded axis.
    pub(super) fn beside(&self, value: Value) -> (Vec<Axis>, Elem) {
        let node = self.program.node(value);
        (node.axes.without(self.axis).iter().collect(), stored(node.ty))
    }

    /// The operands that a rank needs of its own to compute a value.
    pub(super) fn needs(&self, value: Value) -> Vec<Value> {
        let op = &self.program.node(value).op;
        match (self.levels.exchange[value.0 as usize], op) {
            (Some(Exchange::Scan), Op::Scan { elements, .. }) => self.levels.elements(value, elements),
            (Some(Exchange::Reduce | Exchange::LastState { .. } | Exchange::Gather), _) => vec![],
            (Some(Exchange::End), Op::Last { empty, .. } | Op::First { empty, .. }) => vec![*empty],
            (_, Op::Field(tuple, _)) if self.is_total(*tuple) => vec![],
            _ => op.operands().into_vec(),
        }
    }

    fn is_scan(&self, value: Value) -> bool {
        self.levels.exchange[value.0 as usize] == Some(Exchange::Scan)
    }

    /// The scan or reduction whose totals are those of a value.
    pub(super) fn leader(&self, value: Value) -> Value {
        if self.is_scan(value) { leader(self.program, value) } else { value }
    }

    /// The fields of a scan's state on which what is read of later states depends.
    pub(super) fn live_fields(&self, scan: Value) -> Vec<bool> {
        let Op::Scan { operator, .. } = self.program.node(scan).op else { return vec![] };
        let operator = self.program.operator(operator);
        let (n, of) = (operator.fields.len(), operator.dependencies());
        let mut live = vec![false; n];
        for node in &self.program.nodes {
            if let Op::Field(tuple, k) = node.op {
                live[k as usize % n] |=
                    self.is_scan(tuple) && leader(self.program, tuple) == leader(self.program, scan);
            }
        }
        for _ in 0..n {
            let read: u64 = (0..n).filter(|k| live[*k]).fold(0, |all, k| all | of[k]);
            live.iter_mut().enumerate().take(64).for_each(|(k, live)| *live |= read >> k & 1 == 1);
        }
        live
    }

    /// The axes of each field of a scan's state, without the sharded one.
    pub(super) fn state_axes(&self, scan: Value) -> Vec<AxisSet> {
        let Op::Scan { operator, elements, init, .. } = &self.program.node(scan).op else { return vec![] };
        let axes = |v: &Value| self.program.node(*v).axes.without(self.axis);
        let mut given: Vec<AxisSet> = elements.iter().map(axes).collect();
        given.iter_mut().zip(init).for_each(|(given, init)| *given = given.union(axes(init)));
        self.program.operator(*operator).field_axes(&given)
    }

    /// The axes of each field of the total of a scan or a reduction.
    pub(super) fn total_axes(&self, value: Value) -> Vec<AxisSet> {
        let (Op::Scan { operator, elements, .. } | Op::Reduce { operator, elements, .. }) =
            &self.program.node(value).op
        else {
            return vec![];
        };
        let axes = |v: &Value| self.program.node(*v).axes.without(self.axis);
        self.program.operator(*operator).field_axes(&elements.iter().map(axes).collect::<Vec<_>>())
    }

    /// All phases, without what nothing reads.
    pub(super) fn phases(&self) -> Result<Vec<Phase>, TypeError> {
        let outputs = self.program.outputs.iter().map(|output| self.levels.of[output.value.0 as usize]);
        let last = outputs.max().unwrap_or(0);
        let mut phases = (0..=last).map(|level| self.phase(level)).collect::<Result<Vec<_>, _>>()?;
        let mut needed = HashSet::new();
        phases.iter_mut().rev().for_each(|phase| self.trim(phase, &mut needed));
        Ok(phases)
    }

    fn phase(&self, level: usize) -> Result<Phase, TypeError> {
        let mut local = Local::new(self, &format!("{}.shard{level}", self.program.name));
        let mut phase = Phase::default();
        for output in self.program.outputs.iter().filter(|output| self.levels.of[output.value.0 as usize] == level) {
            local.output(output)?;
        }
        for (k, exchange) in self.levels.exchange.iter().enumerate() {
            let (Some(exchange), value) = (exchange, Value(k as u32)) else { continue };
            if self.leader(value) != value {
                continue;
            }
            if self.levels.of[k] == level {
                self.receive(*exchange, value, &mut phase)?;
            }
            if self.levels.sent[k] == level {
                phase.messages.extend(self.send(*exchange, value, &mut local)?);
            }
        }
        phase.program = Some(local.finish());
        Ok(phase)
    }

    /// The messages of a value.
    fn send(&self, exchange: Exchange, value: Value, local: &mut Local<'_>) -> Result<Vec<String>, TypeError> {
        match exchange {
            Exchange::Scan | Exchange::Reduce => local.totals(value),
            Exchange::LastState { .. } => Ok(vec![]),
            Exchange::End => local.end_of_shard(value),
            Exchange::Shift => local.border(value),
            Exchange::Gather => local.elements(value),
        }
    }

    /// How the messages of all ranks about a value are used.
    fn receive(&self, exchange: Exchange, value: Value, phase: &mut Phase) -> Result<(), TypeError> {
        match (exchange, &self.program.node(value).op) {
            (Exchange::Scan, _) => phase.folds.push(fold::of_scan(self, value)?),
            (Exchange::Reduce, _) => phase.folds.push(fold::of_reduce(self, value)?),
            (Exchange::LastState { scan, field }, _) => {
                phase.folds.push(fold::of_last_state(self, value, (scan, field))?);
            }
            (Exchange::End, op) => {
                let which = if matches!(op, Op::First { .. }) { Which::First } else { Which::Last };
                let name = named("end", value);
                phase.picks.push(Pick { param: name.clone(), messages: vec![name], which });
            }
            (Exchange::Shift, Op::Shift { by, .. }) => {
                let messages: Vec<String> = (0..by.abs()).map(|k| named_border(value, k)).collect();
                let pick = |k| Pick {
                    param: named_border(value, k),
                    messages: messages.clone(),
                    which: Which::of_shift(*by, k),
                };
                phase.picks.extend((0..by.abs()).map(pick));
            }
            (Exchange::Gather, _) => phase.folds.push(fold::of_gather(self, value)?),
            (Exchange::Shift, _) => {}
        }
        Ok(())
    }

    /// Leaves out what no later phase needs, and notes what this one does.
    fn trim(&self, phase: &mut Phase, needed: &mut HashSet<String>) {
        phase.messages.retain(|message| needed.contains(message));
        let sent: HashSet<&str> = phase.messages.iter().map(String::as_str).collect();
        phase.program = phase.program.take().and_then(|mut program| {
            let is_own = |name: &str| self.program.outputs.iter().any(|output| output.name == name);
            program.outputs.retain(|output| is_own(&output.name) || sent.contains(output.name.as_str()));
            (!program.outputs.is_empty()).then(|| prune_params(&simplify(&program)))
        });
        needed.extend(phase.program.iter().flat_map(names_of_params));
        let mut folds: Vec<Fold> = phase.folds.drain(..).rev().filter_map(|fold| trimmed(fold, needed)).collect();
        folds.reverse();
        phase.folds = folds;
        phase.picks.retain(|pick| needed.contains(&pick.param));
        needed.extend(phase.picks.iter().flat_map(|pick| pick.messages.clone()));
    }
}

/// The fold with the outputs that are needed, if any is.
fn trimmed(fold: Fold, needed: &mut HashSet<String>) -> Option<Fold> {
    let outputs: Vec<&str> = fold.program.outputs.iter().map(|output| output.name.as_str()).collect();
    let wanted: Vec<&str> = outputs.into_iter().filter(|name| needed.contains(*name)).collect();
    if wanted.is_empty() {
        return None;
    }
    let program = prune_params(&keep_outputs(&fold.program, &wanted));
    let params: HashSet<String> = names_of_params(&program).collect();
    let gathered = fold.gathered.into_iter().filter(|name| params.contains(name)).collect();
    needed.extend(params);
    Some(Fold { program, gathered, ranks: fold.ranks })
}

fn names_of_params(program: &Program) -> impl Iterator<Item = String> + '_ {
    program.params.iter().map(|param| param.name.clone())
}
