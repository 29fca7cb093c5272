//! Plans in pieces: stages that run for one piece of an axis after the other, so that temporary tensors take the memory of one piece.
//!
//! A stage can run in pieces of an axis if all that it writes has the axis, and it treats every index by itself. Its kernel is the one
//! that runs the whole: sizes and addresses are arguments.

use std::collections::HashMap;
use std::ops::Range;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, ENDS, Program};

use super::layouts::contiguous;
use super::{Division, Given};
use crate::plan::choosing::Choosing;
use crate::plan::places::{Need, Places};
use crate::plan::sizes::{count, merged};
use crate::plan::{Arg, Buffer, Call, Choice, Launch, Layout, Plan};
use crate::stage::{Sink, Source, Stage};
use crate::words::counted;

/// The most pieces of a call, and the most axes that they are pieces of.
const MOST: i64 = 256;
const AXES: usize = 3;

/// Axes that a call is divided along, and how many indices of each a piece has.
type Pieces = Vec<(Axis, i64)>;
type Along = [(Axis, i64)];

/// A call in pieces.
#[derive(Clone, Copy)]
struct InPieces<'a> {
    program: &'a Program,
    call: &'a Call,
    pieces: &'a Along,
    group: &'a Group,
}

/// The stages that run in pieces.
struct Group {
    /// Whether each stage does, and of the others, whether it reads what these have computed.
    inside: Vec<bool>,
    after: Vec<bool>,
    /// Whether each buffer is written and read by these alone.
    local: Vec<bool>,
}

impl Division {
    /// The plan of a call in as few pieces as let its buffers take at most so many bytes, or in as many as there may be; `None`
    /// where no stage that fills a buffer can run in pieces.
    pub(in crate::plan) fn plan_in_pieces(
        &self,
        program: &Program,
        call: &Call,
        choosing: Choosing<'_>,
        most: u64,
    ) -> Option<Plan> {
        let mut whole = self.with_partial_sums(call, 1);
        let call = &whole.call.clone();
        let pieces = self.pieces(program, call, most)?;
        let group = self.group(program, &pieces);
        let work = InPieces { program, call, pieces: &pieces, group: &group };
        // Each piece may have another number of partial sums.
        let written = self.cut.stages.iter().zip(&group.inside).filter(|(_, inside)| **inside);
        let mut written = written.flat_map(|(stage, _)| &stage.sinks);
        if written.any(
            |sink| matches!(sink, Sink::Buffer(k) if !group.local[*k as usize] && self.has_partial_sums(*k as usize)),
        ) {
            return None;
        }
        self.check(&whole).ok()?;
        let mut plan = self.empty(self.buffers(&whole).ok()?);
        let lens = self.lens(call, &pieces);
        for (buffer, (local, len)) in plan.buffers.iter_mut().zip(group.local.iter().zip(lens)) {
            *buffer = if *local { Buffer { len: len?, ..buffer.clone() } } else { buffer.clone() };
        }
        let others = |after: bool| {
            let is_one = |i: &usize| !group.inside[*i] && group.after[*i] == after;
            (0..self.stages.len()).filter(is_one).collect::<Vec<_>>()
        };
        for index in others(false) {
            self.step_in(&mut whole, choosing, index, &mut plan)?;
        }
        self.all_pieces(&work, choosing, &mut plan)?;
        for index in others(true) {
            self.step_in(&mut whole, choosing, index, &mut plan)?;
        }
        Some(plan)
    }

    /// Whether a buffer has partial sums.
    fn has_partial_sums(&self, buffer: usize) -> bool {
        self.cut.partial_axis.is_some_and(|axis| self.cut.buffers[buffer].axes.contains(&axis))
    }

    /// Adds the launch of a stage. Where it stores partial sums, later stages of the piece know their number.
    fn step_in(&self, given: &mut Given, choosing: Choosing<'_>, index: usize, plan: &mut Plan) -> Option<()> {
        if let Some(sums) = self.step(given, choosing, index, plan).ok()? {
            given.call = self.with_partial_sums(&given.call, sums).call;
            self.check(given).ok()?;
            for k in (0..self.cut.buffers.len()).filter(|k| self.has_partial_sums(*k)) {
                plan.buffers[k].len = plan.buffers[k].len.max(count(given, &self.cut.buffers[k].axes)?);
            }
        }
        Some(())
    }

    /// Adds the launches of all pieces.
    fn all_pieces(&self, work: &InPieces<'_>, choosing: Choosing<'_>, plan: &mut Plan) -> Option<()> {
        let InPieces { program, call, pieces, group } = *work;
        let all = firsts(call, pieces);
        let scratch = plan.buffers.len();
        // The launches of pieces of the same sizes differ in addresses alone.
        let mut known: HashMap<Vec<i64>, Vec<Launch>> = HashMap::new();
        for (number, firsts) in all.iter().enumerate() {
            let mut given = self.piece(work, firsts);
            let (sizes, step) = (given.call.sizes.clone(), plan.steps.len());
            if let Some(launches) = known.get(&sizes) {
                for launch in launches {
                    plan.choices.push(Choice { step: Some(plan.steps.len()), candidates: vec![], refused: vec![] });
                    plan.steps.push(launch.clone());
                }
            } else {
                let (choices, buffers) = (plan.choices.len(), plan.buffers.len());
                for index in (0..self.stages.len()).filter(|i| group.inside[*i]) {
                    self.step_in(&mut given, choosing, index, plan)?;
                }
                let choices = &mut plan.choices[choices..];
                if number == 0 {
                    choices.iter_mut().for_each(|choice| tell(choice, program, pieces, all.len()));
                } else {
                    choices.iter_mut().for_each(|choice| (choice.candidates, choice.refused) = (vec![], vec![]));
                    reuse_scratch(plan, step, scratch, buffers);
                }
                known.insert(sizes, plan.steps[step..].to_vec());
            }
            plan.pieces.push(step..plan.steps.len());
            for launch in &mut plan.steps[step..] {
                for place in 0..launch.args.len() {
                    let by = self.bytes_before(work, firsts, launch.args[place]);
                    if by != 0 {
                        launch.offsets.push((place, by));
                    }
                }
            }
        }
        Some(())
    }

    /// The call of a piece: sizes of its own, and the layouts of tensors that are there for all pieces.
    fn piece(&self, work: &InPieces<'_>, firsts: &Along) -> Given {
        let InPieces { program, call, pieces, group } = *work;
        let mut own = call.clone();
        for ((axis, each), (_, first)) in pieces.iter().zip(firsts) {
            let size = &mut own.sizes[axis.0 as usize];
            *size = (*size - first).min(*each);
        }
        let params = program.params.iter().zip(&mut own.params);
        params.for_each(|(p, layout)| layout.iter_mut().for_each(|layout| align(layout, &p.axes, p.elem, pieces)));
        let outputs = program.outputs.iter().zip(&mut own.outputs);
        outputs.for_each(|(o, layout)| align(layout, &o.axes, o.elem, pieces));
        let kept = self.cut.buffers.iter().zip(&group.local).enumerate().map(|(k, (buffer, local))| {
            let mut layout = Layout { strides: self.strides(call, k as u32), align: 16 };
            align(&mut layout, &buffer.axes, buffer.elem, pieces);
            (!local).then_some(layout)
        });
        let kept = kept.collect();
        Given { call: own, kept }
    }

    /// The strides of a buffer that is there for all pieces.
    fn strides(&self, call: &Call, buffer: u32) -> Vec<i64> {
        let axes = &self.cut.buffers[buffer as usize].axes;
        let sizes: Vec<i64> = (0..call.sizes.len() as u32).map(|axis| merged(call, &[Axis(axis)])).collect();
        contiguous(axes, &sizes).strides
    }

    /// Bytes from a tensor's first element to that of a piece.
    fn bytes_before(&self, work: &InPieces<'_>, firsts: &Along, arg: Arg) -> i64 {
        let InPieces { program, call, group, .. } = *work;
        let (axes, elem, strides) = match arg {
            Arg::Param(k) => {
                let (param, layout) = (&program.params[k as usize], &call.params[k as usize]);
                (&param.axes, param.elem, layout.as_ref().map(|layout| layout.strides.clone()).unwrap_or_default())
            }
            Arg::Output(k) => {
                let output = &program.outputs[k as usize];
                (&output.axes, output.elem, call.outputs[k as usize].strides.clone())
            }
            Arg::Buffer(k) if group.local.get(k as usize) == Some(&false) => {
                let buffer = &self.cut.buffers[k as usize];
                (&buffer.axes, buffer.elem, self.strides(call, k))
            }
            _ => return 0,
        };
        let first = |axis: &Axis| firsts.iter().find(|(own, _)| own == axis).map_or(0, |(_, first)| *first);
        let elements: i64 = axes.iter().zip(strides).map(|(axis, stride)| first(axis) * stride).sum();
        elements * elem.bytes().unwrap_or(8) as i64
    }

    /// The axes that pieces are of, and their sizes in a piece: those with which buffers fit by the fewest pieces.
    fn pieces(&self, program: &Program, call: &Call, most: u64) -> Option<Pieces> {
        let mut pieces: Pieces = vec![];
        let mut bytes = self.bytes(call, &pieces, &self.group(program, &pieces));
        while pieces.len() < AXES && bytes > most {
            let axes = (0..program.axes.len() as u32).map(Axis);
            let axes = axes.filter(|axis| is_divisible(program, call, *axis, &pieces));
            let best = axes.filter_map(|axis| self.along(program, call, &pieces, axis, most));
            // Of those that suffice the one with the fewest pieces, else the one that leaves least.
            let rank = |(next, left): &(Pieces, u64)| {
                let suffices = *left <= most;
                (!suffices, if suffices { number_of_pieces(call, next) as u64 } else { *left })
            };
            let Some((next, left)) = best.min_by_key(rank) else { break };
            if left >= bytes {
                break;
            }
            (pieces, bytes) = (next, left);
        }
        (!pieces.is_empty()).then_some(pieces)
    }

    /// Pieces of one more axis, as few as let buffers take at most so many bytes, or as many as there may be; and what they take.
    fn along(&self, program: &Program, call: &Call, pieces: &Along, axis: Axis, most: u64) -> Option<(Pieces, u64)> {
        let size = call.sizes[axis.0 as usize];
        let with = |count: i64| {
            let each = (size as u64).div_ceil(count as u64) as i64;
            pieces.iter().copied().chain([(axis, each)]).collect::<Pieces>()
        };
        let group = self.group(program, &with(1));
        let counts: Vec<i64> = (2..=size.min(MOST / number_of_pieces(call, pieces))).collect();
        let fewest = counts.partition_point(|count| self.bytes(call, &with(*count), &group) > most);
        let pieces = with(*counts.get(fewest).or(counts.last())?);
        let bytes = self.bytes(call, &pieces, &group);
        Some((pieces, bytes))
    }

    /// Bytes that the buffers between stages take, some of which run in these pieces.
    fn bytes(&self, call: &Call, pieces: &Along, group: &Group) -> u64 {
        let lens = self.lens(call, pieces).into_iter().zip(self.lens(call, &[])).zip(&group.local);
        let lens = lens.map(|((piece, whole), local)| if *local { piece } else { whole });
        let needs = lens.zip(&self.cut.buffers).zip(self.spans(group)).map(|((len, buffer), span)| {
            let bytes = u128::from(len.unwrap_or(u64::MAX)) * buffer.elem.bytes().unwrap_or(8) as u128;
            Need { bytes, spans: span.into_iter().collect() }
        });
        u64::try_from(Places::of(&needs.collect::<Vec<_>>()).bytes).unwrap_or(u64::MAX)
    }

    /// From which stage to which one each buffer is needed, in the order in which they run. All pieces need one that is there for all.
    fn spans(&self, group: &Group) -> Vec<Option<Range<usize>>> {
        let (stages, count) = (&self.cut.stages, self.cut.stages.len());
        let rank = |i: &usize| (group.after[*i], group.inside[*i], *i);
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(rank);
        let is_inside = |place: &usize| group.inside[order[*place]];
        let all = (0..count).find(is_inside).zip((0..count).rfind(is_inside)).map(|(first, last)| first..last + 1);
        let span = |k: usize| {
            let uses = |place: &usize| uses(&stages[order[*place]], k);
            let own = (0..count).find(uses)?..(0..count).rfind(uses)? + 1;
            let across = all.clone().filter(|all| !group.local[k] && own.start < all.end && all.start < own.end);
            Some(across.map_or(own.clone(), |all| own.start.min(all.start)..own.end.max(all.end)))
        };
        (0..self.cut.buffers.len()).map(span).collect()
    }

    /// The lengths of all buffers if they are those of a piece.
    fn lens(&self, call: &Call, pieces: &Along) -> Vec<Option<u64>> {
        let mut own = call.clone();
        pieces.iter().for_each(|(axis, each)| own.sizes[axis.0 as usize] = *each);
        self.cut.buffers.iter().map(|buffer| count(&own, &buffer.axes)).collect()
    }

    /// The stages that can run in pieces of these axes, one after the other.
    fn group(&self, program: &Program, pieces: &Along) -> Group {
        let stages = &self.cut.stages;
        let mut group = Group { inside: vec![], after: vec![], local: vec![true; self.cut.buffers.len()] };
        // Stages that read what a stage has computed which does not run in pieces, but reads what is computed in pieces.
        let mut late: Vec<bool> = vec![];
        for stage in stages {
            let before: Vec<usize> = (0..group.inside.len()).filter(|i| reads(stage, &stages[*i])).collect();
            let is_late = before.iter().any(|i| late[*i] || group.after[*i]);
            let is_apart = !pieces.is_empty() && pieces.iter().all(|(axis, _)| is_apart(program, stage, *axis));
            let inside = is_apart && !is_late;
            group.after.push(!inside && before.iter().any(|i| group.inside[*i] || group.after[*i]));
            group.inside.push(inside);
            late.push(is_late);
        }
        for (stage, _) in stages.iter().zip(&group.inside).filter(|(_, inside)| !**inside) {
            let read =
                stage.sources.iter().filter_map(|source| if let Source::Buffer(k) = source { Some(*k) } else { None });
            let written =
                stage.sinks.iter().filter_map(|sink| if let Sink::Buffer(k) = sink { Some(*k) } else { None });
            read.chain(written).for_each(|k| group.local[k as usize] = false);
        }
        group
    }
}

/// Whether a stage reads or writes a buffer.
fn uses(stage: &Stage, buffer: usize) -> bool {
    stage.sources.iter().any(|source| matches!(source, Source::Buffer(k) if *k as usize == buffer))
        || stage.sinks.iter().any(|sink| matches!(sink, Sink::Buffer(k) if *k as usize == buffer))
}

/// Makes the estimates of a stage for one piece those for so many.
fn tell(choice: &mut Choice, program: &Program, pieces: &Along, count: usize) {
    let names: Vec<&str> = pieces.iter().map(|(axis, _)| program.axis_name(*axis)).collect();
    let words = format!("{} of {}", counted(count, "piece"), names.join(" and "));
    for estimate in &mut choice.candidates {
        estimate.micros *= count as f64;
        estimate.bytes = estimate.bytes.saturating_mul(count as u64);
        estimate.why = format!("{words} to save memory, each: {}", estimate.why);
    }
}

/// The indices at which pieces begin, along each axis.
fn firsts(call: &Call, pieces: &Along) -> Vec<Vec<(Axis, i64)>> {
    let along = |all: Vec<Vec<(Axis, i64)>>, (axis, each): &(Axis, i64)| {
        let begin = |before: Vec<(Axis, i64)>| {
            let own = (0..call.sizes[axis.0 as usize]).step_by(*each as usize);
            own.map(move |first| before.iter().copied().chain([(*axis, first)]).collect())
        };
        all.into_iter().flat_map(begin).collect()
    };
    pieces.iter().fold(vec![vec![]], along)
}

/// The number of pieces.
fn number_of_pieces(call: &Call, pieces: &Along) -> i64 {
    pieces.iter().map(|(axis, each)| (call.sizes[axis.0 as usize] as u64).div_ceil(*each as u64) as i64).product()
}

/// Whether pieces may be of an axis: not of one whose sequences begin and end where another says.
fn is_divisible(program: &Program, call: &Call, axis: Axis, pieces: &Along) -> bool {
    let name = program.axis_name(axis);
    let is_linked = name.ends_with(ENDS) || program.axis(&format!("{name}{ENDS}")).is_some();
    call.sizes[axis.0 as usize] > 1 && !is_linked && pieces.iter().all(|(own, _)| *own != axis)
}

/// Whether a stage treats every index of an axis of the whole program by itself.
fn is_apart(program: &Program, stage: &Stage, axis: Axis) -> bool {
    let Some(own) = stage.axes.iter().position(|group| group.contains(&axis)) else { return false };
    if stage.axes[own].len() != 1 || program.axes.len() <= axis.0 as usize {
        return false;
    }
    let own = Axis(own as u32);
    let is_named = |op: &oplus_dsl::ir::Op| {
        let found = std::cell::Cell::new(false);
        op.clone().map_axes(|axis| {
            found.set(found.get() || axis == own);
            axis
        });
        found.get()
    };
    stage.program.outputs.iter().all(|output| output.axes.contains(&own))
        && stage.views.iter().flatten().all(|view| view.axis != own)
        && !stage.program.nodes.iter().any(|node| is_named(&node.op))
}

/// Whether a stage reads what another writes.
fn reads(stage: &Stage, writer: &Stage) -> bool {
    let written = |source: &Source| {
        writer.sinks.iter().any(|sink| match (source, sink) {
            (Source::Buffer(k), Sink::Buffer(own)) | (Source::Output(k), Sink::Output(own)) => k == own,
            _ => false,
        })
    };
    stage.sources.iter().any(written)
}

/// Lowers the alignment of a layout to that of the first elements of all pieces.
fn align(layout: &mut Layout, axes: &[Axis], elem: Elem, pieces: &Along) {
    for (axis, each) in pieces {
        let Some(place) = axes.iter().position(|own| own == axis) else { continue };
        let bytes = layout.strides[place].wrapping_mul(*each).wrapping_mul(elem.bytes().unwrap_or(8) as i64);
        layout.align = layout.align.min(1 << bytes.trailing_zeros().min(4));
    }
}

/// Lets the launches from a step on use scratch memory of pieces before in place of their own, which is taken out of the plan.
fn reuse_scratch(plan: &mut Plan, step: usize, scratch: usize, own: usize) {
    let added = plan.buffers.split_off(own);
    let mut places = vec![];
    for (k, buffer) in added.into_iter().enumerate() {
        let known = plan.buffers.get_mut(scratch + k).filter(|known| known.elem == buffer.elem);
        places.push(match known {
            Some(known) => {
                known.len = known.len.max(buffer.len);
                scratch + k
            }
            None => {
                plan.buffers.push(buffer);
                plan.buffers.len() - 1
            }
        } as u32);
    }
    for arg in plan.steps[step..].iter_mut().flat_map(|launch| &mut launch.args) {
        if let Arg::Buffer(k) = arg
            && let Some(k) = (*k as usize).checked_sub(own).map(|k| &places[k])
        {
            *arg = Arg::Buffer(*k);
        }
    }
}
