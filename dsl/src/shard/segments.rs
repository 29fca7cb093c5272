//! Shards in segments: a rank runs the programs of its shard for several equal parts of it at once, as if each were a rank.
//!
//! A long scan of few rows leaves most of a GPU idle, and a kernel then divides its time into segments, whose states it has to find
//! first. The totals of a shard are found in the same way. In segments both are one: the first phase gives the total of every
//! segment; the rank combines them to its own, which is exchanged; and the next phase begins each segment at the state that the
//! totals before it lead to. Nothing but the totals is computed twice.

use std::collections::HashMap;

use crate::batched::batched;
use crate::build::Direction;
use crate::elem::Ty;
use crate::ir::{Axis, Literal, Op, Program, Value};
use crate::simplify::prune_params;
use crate::specialize::keep_outputs;
use crate::typing::TypeError;

use super::divide::Divide;
use super::level::Exchange;
use super::local::{Local, named_field, stored};
use super::{END, Phase, SEGMENTS, START};

/// The phases for all segments of a shard at once; `None` where anything but totals goes from one segment to the next.
pub(super) fn in_segments(divide: &Divide<'_>, phases: &[Phase]) -> Result<Option<Vec<Phase>>, TypeError> {
    let is_gathered = |phase: &Phase| phase.messages.iter().any(|message| !is_total(message));
    if phases.iter().any(|phase| !phase.picks.is_empty() || is_gathered(phase)) {
        return Ok(None);
    }
    let mut segmented = Segmented { divide, varies: HashMap::new() };
    let mut all = vec![];
    for phase in phases {
        let Some(own) = segmented.phase(phase)? else { return Ok(None) };
        all.push(own);
    }
    Ok(Some(all))
}

/// Whether a message is the total of a scan or of a reduction.
fn is_total(message: &str) -> bool {
    message.starts_with("shard.total")
}

struct Segmented<'a> {
    divide: &'a Divide<'a>,
    /// For every total so far, whether segments have different ones.
    varies: HashMap<String, bool>,
}

impl Segmented<'_> {
    /// A phase of all segments.
    fn phase(&mut self, phase: &Phase) -> Result<Option<Phase>, TypeError> {
        let mut own = phase.clone();
        let Some(program) = &phase.program else { return Ok(Some(own)) };
        for scan in self.exchanged(|exchange| exchange == Exchange::Scan) {
            own.spreads.extend(self.spread(scan, program)?);
        }
        let Some((wider, varies)) = self.widened(program) else { return Ok(None) };
        let named = wider.outputs.iter().zip(varies).map(|(output, varies)| (output.name.clone(), varies));
        self.varies.extend(named);
        for value in self.exchanged(|exchange| matches!(exchange, Exchange::Scan | Exchange::Reduce)) {
            own.joins.extend(self.join(value, &phase.messages)?);
        }
        own.program = Some(wider);
        Ok(Some(own))
    }

    /// The scans and reductions that are exchanged in some way, those alike once.
    fn exchanged(&self, is_meant: impl Fn(Exchange) -> bool) -> Vec<Value> {
        let all = self.divide.levels.exchange.iter().enumerate();
        let meant = all.filter(|(_, exchange)| exchange.is_some_and(&is_meant)).map(|(k, _)| Value(k as u32));
        meant.filter(|value| self.divide.leader(*value) == *value).collect()
    }

    /// The program with the axis of segments, and which outputs have it: all that have the divided axis, and no other but totals.
    fn widened(&self, program: &Program) -> Option<(Program, Vec<bool>)> {
        let divided = program.axis(&self.divide.program.axes[self.divide.axis.0 as usize]);
        let is_divided = |axes: &[Axis]| axes.iter().any(|axis| Some(*axis) == divided);
        let of_segment = |name: &str| name == START || name == END || name.starts_with("shard.carry");
        let mapped: Vec<bool> = program.params.iter().map(|p| is_divided(&p.axes) || of_segment(&p.name)).collect();
        let (mut wider, varies) = batched(program, &mapped).ok()?;
        *wider.axes.first_mut()? = SEGMENTS.to_owned();
        let outputs = program.outputs.iter().zip(&varies);
        let is_right = |(output, varies): (&crate::ir::Output, &bool)| {
            is_total(&output.name) || is_divided(&output.axes) == *varies
        };
        outputs.into_iter().all(is_right).then_some((wider, varies))
    }

    /// The states before each segment, from the state before the shard and the totals of the segments, if the program asks for them.
    fn spread(&self, scan: Value, program: &Program) -> Result<Option<Program>, TypeError> {
        let Op::Scan { operator, reverse, .. } = &self.divide.program.node(scan).op else { return Ok(None) };
        let own = self.divide.program.operator(*operator);
        let name = |k: usize| named_field("carry", scan, &own.fields[k].name);
        if !(0..own.fields.len()).any(|k| program.param(&name(k)).is_some()) {
            return Ok(None);
        }
        let mut local = Local::new(self.divide, &format!("{}.spread{}", self.divide.program.name, scan.0));
        let segments = local.into.axis(SEGMENTS)?;
        let totals = self.totals(&mut local, scan, segments)?;
        let (live, axes) = (self.divide.live_fields(scan), self.divide.state_axes(scan));
        let mut init = vec![];
        for (k, field) in own.fields.iter().enumerate() {
            let axes: Vec<Axis> = axes[k].iter().collect();
            init.push(match live[k] {
                true => local.param(&name(k), &axes, stored(field.ty))?,
                false => local.into.constant(field.ty, own.identity[k])?,
            });
        }
        let id = local.operator(*operator)?;
        let direction = Direction { reverse: *reverse, exclusive: true };
        let states = local.into.scan(segments, id, &totals, &init, direction)?;
        for (k, state) in states.into_iter().enumerate().filter(|(k, _)| live[*k]) {
            let axes = [segments].into_iter().chain(axes[k].iter()).collect();
            local.send(name(k), (axes, stored(own.fields[k].ty)), state);
        }
        Ok(Some(prune_params(&crate::simplify::simplify(&local.finish()))))
    }

    /// The totals of the shard from those of its segments, as far as they are sent.
    fn join(&self, value: Value, messages: &[String]) -> Result<Option<Program>, TypeError> {
        let (operator, reverse) = match &self.divide.program.node(value).op {
            Op::Scan { operator, reverse, .. } => (*operator, Some(*reverse)),
            Op::Reduce { operator, .. } => (*operator, None),
            _ => return Ok(None),
        };
        let own = self.divide.program.operator(operator);
        let names: Vec<String> = own.fields.iter().map(|field| named_field("total", value, &field.name)).collect();
        let sent: Vec<&str> = names.iter().filter(|name| messages.contains(name)).map(String::as_str).collect();
        if sent.is_empty() {
            return Ok(None);
        }
        let mut local = Local::new(self.divide, &format!("{}.join{}", self.divide.program.name, value.0));
        let segments = local.into.axis(SEGMENTS)?;
        let totals = self.totals(&mut local, value, segments)?;
        let id = local.operator(operator)?;
        let whole = match reverse {
            None => local.into.reduce(segments, id, &totals)?,
            Some(reverse) => {
                let states = local.into.scan(segments, id, &totals, &[], Direction { reverse, exclusive: false })?;
                local.last_states(segments, operator, &states, reverse)?
            }
        };
        for ((field, axes), total) in own.fields.iter().zip(self.divide.total_axes(value)).zip(whole) {
            let name = named_field("total", value, &field.name);
            local.send(name, (axes.iter().collect(), stored(field.ty)), total);
        }
        Ok(Some(prune_params(&keep_outputs(&local.finish(), &sent))))
    }

    /// The totals of the segments of a scan or a reduction. A field of which none is kept has the identity.
    fn totals(&self, local: &mut Local<'_>, value: Value, segments: Axis) -> Result<Vec<Value>, TypeError> {
        let (Op::Scan { operator, .. } | Op::Reduce { operator, .. }) = &self.divide.program.node(value).op else {
            return Ok(vec![]);
        };
        let own = self.divide.program.operator(*operator);
        let fields = own.fields.iter().zip(&own.identity).zip(self.divide.total_axes(value));
        let mut total = |((field, identity), axes): ((&crate::ir::Field, &Literal), crate::ir::AxisSet)| {
            let name = named_field("total", value, &field.name);
            let ty: Ty = field.ty;
            match self.varies.get(&name) {
                None => local.into.constant(ty, *identity),
                Some(varies) => {
                    let axes: Vec<Axis> = varies.then_some(segments).into_iter().chain(axes.iter()).collect();
                    local.param(&name, &axes, stored(ty))
                }
            }
        };
        fields.map(&mut total).collect()
    }
}
