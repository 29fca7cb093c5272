//! Cutting a program into stages.
//!
//! A stage is one walk over the indices of some axes. Along each of its axes a stage is *parallel* (every index on its
//! own), or holds the axis *whole* (all indices at once, so that anything may happen along it), or *streams* it (tile
//! after tile in one direction, states carried along). Scans, reductions and final states are *anchored*: each belongs
//! to one stage. Maps belong to none: they are computed wherever they are needed. An anchored value that another stage
//! needs goes through memory. A gather of anchored values is a stage of its own; one of parameters is read where it is needed.

use std::ops::Range;

use oplus_dsl::ir::{Axis, AxisSet, Node, Op, Output, Program, Value};

use crate::cpu::kernel::commutes;

use super::borders::Borders;
use super::products::{Products, Tiling};

/// The most indices that the axes held whole may have together: a register of them fits the nearest caches.
const WHOLE: usize = 1 << 14;

/// The work of a stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Draft {
    /// Every index on its own.
    pub(super) parallel: AxisSet,
    /// All indices at once.
    pub(super) whole: AxisSet,
    /// In this order; reversed if true.
    pub(super) streamed: Option<(Axis, bool)>,
    /// The outputs that are stored.
    pub(super) outputs: Vec<usize>,
    /// Whether nothing else may be anchored here.
    pub(super) is_full: bool,
    /// Whether it walks in tiles of rows and columns, whose products of matrices it sums along the streamed axis.
    pub(super) is_tiled: bool,
}

/// The stages of a program.
#[derive(Debug)]
pub(super) struct Drafts<'a> {
    pub(super) program: &'a Program,
    pub(super) sizes: &'a [usize],
    pub(super) borders: &'a Borders,
    /// Whether everything combines from one end to the other, step by step.
    pub(super) ordered: bool,
    pub(super) stages: Vec<Draft>,
    /// The stage of every anchored value.
    pub(super) home: Vec<Option<usize>>,
    /// The sums that are products of matrices.
    pub(super) products: Products,
    /// Which values anything needs.
    pub(super) live: Vec<bool>,
    /// The values that each value is computed from: anchored ones, and the axes along which they are displaced.
    cones: Vec<Vec<(Value, AxisSet)>>,
}

impl Draft {
    fn axes(&self) -> AxisSet {
        let streamed = self.streamed.map_or(AxisSet::EMPTY, |(axis, _)| AxisSet::of(axis));
        self.parallel.union(self.whole).union(streamed)
    }

    /// Whether an axis is streamed.
    pub(super) fn streams(&self, axis: Axis) -> bool {
        self.streamed.is_some_and(|(streamed, _)| streamed == axis)
    }
}

/// The axis along which a node combines or picks.
pub(super) fn axis_of(op: &Op) -> Option<Axis> {
    match op {
        Op::Reduce { axis, .. } | Op::Scan { axis, .. } | Op::Last { axis, .. } | Op::First { axis, .. } => Some(*axis),
        _ => None,
    }
}

/// The axes of which a node reads its first operand at other indices.
fn moved(op: &Op) -> AxisSet {
    match op {
        Op::Shift { axis, .. } | Op::Last { axis, .. } | Op::First { axis, .. } => AxisSet::of(*axis),
        _ => AxisSet::EMPTY,
    }
}

impl<'a> Drafts<'a> {
    /// Cuts a program whose axes have the given sizes.
    pub(super) fn new(program: &'a Program, sizes: &'a [usize], borders: &'a Borders, ordered: bool) -> Drafts<'a> {
        let n = program.nodes.len();
        let (home, live, cones) = (vec![None; n], live(program), vec![vec![]; n]);
        let products = if ordered { Products::default() } else { Products::of(program, &live, sizes) };
        let mut drafts = Drafts { program, sizes, borders, ordered, stages: vec![], home, products, live, cones };
        for at in (0..n).filter(|at| drafts.live[*at]).collect::<Vec<_>>() {
            drafts.place(Value(at as u32));
        }
        for at in 0..program.outputs.len() {
            drafts.place_output(at);
        }
        drafts
    }

    fn place(&mut self, value: Value) {
        let node = self.program.node(value);
        let cone = self.cone(node, moved(&node.op));
        let anchored = match &node.op {
            Op::Reduce { .. } if self.products.floats(value) => false,
            Op::Scan { .. } | Op::Reduce { .. } => self.place_combination(value, &cone),
            Op::Last { axis, value: over, .. } | Op::First { axis, value: over, .. } => {
                let from = self.first_stage(&cone);
                self.cones[over.0 as usize].iter().any(|(anchor, _)| self.program.node(*anchor).axes.contains(*axis))
                    && self.place_in_a_stage(value, &self.cone(node, AxisSet::EMPTY), from..from + 1)
            }
            Op::Starts { axis, list, .. } => {
                let whole = AxisSet::of(*axis).with(*list);
                self.stages.push(Draft { whole, is_full: true, ..Draft::default() });
                self.home[value.0 as usize] = Some(self.stages.len() - 1);
                true
            }
            Op::Gather { value: over, .. } if !self.cones[over.0 as usize].is_empty() => {
                self.stages.push(Draft { parallel: node.axes, is_full: true, ..Draft::default() });
                self.home[value.0 as usize] = Some(self.stages.len() - 1);
                true
            }
            _ => false,
        };
        self.cones[value.0 as usize] = if anchored { vec![(value, AxisSet::EMPTY)] } else { cone };
    }

    /// The values that a node is computed from, if it reads its first operand at other indices of the `moved` axes. A position that
    /// is taken while its axis streams past reads none.
    fn cone(&self, node: &Node, moved: AxisSet) -> Vec<(Value, AxisSet)> {
        let mut cone: Vec<(Value, AxisSet)> = vec![];
        for (k, operand) in node.op.operands().into_iter().enumerate() {
            let displaced = if k == 0 { moved } else { AxisSet::EMPTY };
            for (anchor, axes) in &self.cones[operand.0 as usize] {
                let axes = axes.union(displaced);
                match cone.iter_mut().find(|(known, _)| known == anchor) {
                    Some((_, all)) => *all = all.union(axes),
                    None => cone.push((*anchor, axes)),
                }
            }
        }
        cone
    }

    fn place_combination(&mut self, value: Value, cone: &[(Value, AxisSet)]) -> bool {
        if let (Some(tiling), Some(axis)) =
            (self.products.tiling(self.program, value), axis_of(&self.program.node(value).op))
        {
            self.place_products(value, cone, axis, tiling);
            return true;
        }
        if !self.place_in_a_stage(value, cone, self.first_stage(cone)..self.stages.len()) {
            let op = &self.program.node(value).op;
            let streamed = axis_of(op).map(|axis| (axis, matches!(op, Op::Scan { reverse: true, .. })));
            let parallel = streamed.map_or(self.domain(value), |(axis, _)| self.domain(value).without(axis));
            self.stages.push(Draft { parallel, streamed, ..Draft::default() });
            self.home[value.0 as usize] = Some(self.stages.len() - 1);
        }
        true
    }

    /// Puts a sum of products into a stage of the same tiles, or into one of its own.
    fn place_products(&mut self, value: Value, cone: &[(Value, AxisSet)], axis: Axis, tiling: Tiling) {
        let known = cone.iter().filter_map(|(anchor, _)| self.home[anchor.0 as usize]).max().map_or(0, |home| home + 1);
        let is_alike =
            |draft: &Draft| draft.is_tiled && draft.parallel == tiling.outer && draft.streamed == Some((axis, false));
        let stage = (known..self.stages.len()).find(|stage| is_alike(&self.stages[*stage])).unwrap_or_else(|| {
            let streamed = Some((axis, false));
            self.stages.push(Draft {
                parallel: tiling.outer,
                streamed,
                is_full: true,
                is_tiled: true,
                ..Draft::default()
            });
            self.stages.len() - 1
        });
        self.stages[stage].whole = self.stages[stage].whole.union(tiling.inner);
        self.home[value.0 as usize] = Some(stage);
    }

    /// Puts an anchored value into the first of some stages that can take it, if there is one.
    fn place_in_a_stage(&mut self, value: Value, cone: &[(Value, AxisSet)], mut stages: Range<usize>) -> bool {
        stages.end = stages.end.min(self.stages.len());
        for stage in stages {
            if let Some(draft) = self.fit(value, cone, stage) {
                self.stages[stage] = draft;
                self.home[value.0 as usize] = Some(stage);
                return true;
            }
        }
        false
    }

    /// The first stage in which everything of a cone is known.
    fn first_stage(&self, cone: &[(Value, AxisSet)]) -> usize {
        cone.iter().filter_map(|(anchor, _)| self.home[anchor.0 as usize]).max().unwrap_or(0)
    }

    /// All axes along which an anchored value is computed.
    fn domain(&self, value: Value) -> AxisSet {
        let node = self.program.node(value);
        let operands = node.op.operands().into_iter().map(|v| self.program.node(v).axes);
        operands.chain(axis_of(&node.op).map(AxisSet::of)).fold(node.axes, AxisSet::union)
    }

    /// The stage, changed so that it computes the value too; `None` if it cannot.
    fn fit(&self, value: Value, cone: &[(Value, AxisSet)], stage: usize) -> Option<Draft> {
        let op = &self.program.node(value).op;
        let axis = axis_of(op)?;
        let mut draft = self.stages[stage].clone();
        let reverse = matches!(op, Op::Scan { reverse: true, .. });
        let combines = matches!(op, Op::Scan { .. } | Op::Reduce { .. });
        if draft.is_full {
            return None;
        }
        if draft.parallel.contains(axis) {
            draft.parallel = draft.parallel.without(axis);
            if self.fits_whole(draft.whole.with(axis)) {
                draft.whole = draft.whole.with(axis);
            } else if draft.streamed.is_none() && combines {
                draft.streamed = Some((axis, reverse));
            } else {
                return None;
            }
        }
        let turns = draft.streamed == Some((axis, !reverse)) && self.keeps_order(op);
        if turns || !self.knows(&draft, stage, cone) {
            self.hold_streamed(&mut draft)?;
        }
        let domain = self.domain(value);
        let streamed = draft.axes().minus(draft.parallel).minus(draft.whole);
        let fits = draft.axes().contains_all(domain)
            && domain.contains_all(draft.parallel.union(streamed))
            && self.knows(&draft, stage, cone);
        fits.then_some(draft)
    }

    /// Whether a node combines from the first index to the last (or back) and not in any other order.
    fn keeps_order(&self, op: &Op) -> bool {
        match op {
            Op::Scan { .. } => true,
            Op::Reduce { operator, .. } => self.ordered || !commutes(self.program.operator(*operator)),
            _ => false,
        }
    }

    /// Makes the streamed axis one that is held whole.
    fn hold_streamed(&self, draft: &mut Draft) -> Option<()> {
        let (axis, _) = draft.streamed.take()?;
        draft.whole = draft.whole.with(axis);
        self.fits_whole(draft.whole).then_some(())
    }

    fn fits_whole(&self, axes: AxisSet) -> bool {
        let size = axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(self.sizes[axis.0 as usize]));
        // An axis that other lengths of it cut into parts is cut into them.
        let is_cut = axes.iter().any(|axis| self.borders.part(axis, self.sizes).is_some());
        size.is_some_and(|n| n <= WHOLE) && !is_cut
    }

    /// Whether everything of a cone is at hand in the tiles of a stage or in memory.
    fn knows(&self, draft: &Draft, stage: usize, cone: &[(Value, AxisSet)]) -> bool {
        cone.iter().all(|(anchor, displaced)| {
            let home = self.home[anchor.0 as usize];
            home < Some(stage) || !self.is_late(draft, *anchor) && draft.whole.contains_all(*displaced)
        })
    }

    /// Whether a value of a stage is known only when the stage has streamed past.
    pub(super) fn is_late(&self, draft: &Draft, anchor: Value) -> bool {
        let op = &self.program.node(anchor).op;
        !matches!(op, Op::Scan { .. }) && axis_of(op).is_some_and(|axis| draft.streams(axis))
    }

    fn place_output(&mut self, at: usize) {
        let output = &self.program.outputs[at];
        let axes: AxisSet = output.axes.iter().copied().collect();
        let cone = self.cones[output.value.0 as usize].clone();
        for stage in self.first_stage(&cone)..self.stages.len() {
            if let Some(draft) = self.fit_output(output, axes, &cone, stage) {
                self.stages[stage] = draft;
                self.stages[stage].outputs.push(at);
                return;
            }
        }
        self.stages.push(Draft { parallel: axes, outputs: vec![at], ..Draft::default() });
    }

    fn fit_output(&self, output: &Output, axes: AxisSet, cone: &[(Value, AxisSet)], stage: usize) -> Option<Draft> {
        let mut draft = self.stages[stage].clone();
        let streamed = draft.axes().minus(draft.parallel).minus(draft.whole);
        let spans = draft.axes().contains_all(axes);
        let is_final = self.home[self.anchor(output.value).0 as usize] == Some(stage)
            && self.is_late(&draft, self.anchor(output.value))
            && axes.minus(streamed) == axes;
        if spans && is_final && axes.contains_all(draft.parallel) {
            return Some(draft);
        }
        if draft.is_tiled || !spans || !axes.contains_all(draft.parallel.union(streamed)) {
            return None;
        }
        if !self.knows(&draft, stage, cone) {
            self.hold_streamed(&mut draft)?;
        }
        self.knows(&draft, stage, cone).then_some(draft)
    }

    /// Which nodes a stage computes, or reads from memory, for some values.
    pub(super) fn needed_in(&self, stage: usize, roots: &[Value]) -> Vec<bool> {
        let mut needed = vec![false; self.program.nodes.len()];
        roots.iter().for_each(|root| needed[root.0 as usize] = true);
        for at in (0..needed.len()).rev() {
            if needed[at] && !self.is_borrowed(stage, Value(at as u32)) {
                let operands = self.products.operands(self.program, Value(at as u32));
                operands.iter().for_each(|v| needed[v.0 as usize] = true);
            }
        }
        needed
    }

    /// Whether a stage reads a value that another one has computed.
    pub(super) fn is_borrowed(&self, stage: usize, value: Value) -> bool {
        self.home[self.anchor(value).0 as usize].is_some_and(|home| home < stage)
    }

    /// Moves an output to a stage of its own that reads its value from memory.
    pub(super) fn move_out(&mut self, stage: usize, output: usize) {
        let Output { axes, value, .. } = &self.program.outputs[output];
        let anchor = self.anchor(*value);
        self.home[anchor.0 as usize].get_or_insert(stage);
        self.stages[stage].outputs.retain(|other| *other != output);
        let parallel = axes.iter().copied().collect();
        self.stages.push(Draft { parallel, outputs: vec![output], ..Draft::default() });
    }

    /// The anchored value that a field belongs to; any other value is its own.
    pub(super) fn anchor(&self, value: Value) -> Value {
        if let Op::Field(tuple, _) = self.program.node(value).op { tuple } else { value }
    }
}

/// Which values an output needs.
fn live(program: &Program) -> Vec<bool> {
    let mut live = vec![false; program.nodes.len()];
    program.outputs.iter().for_each(|output| live[output.value.0 as usize] = true);
    for at in (0..live.len()).rev() {
        if live[at] {
            program.nodes[at].op.operands().iter().for_each(|v| live[v.0 as usize] = true);
        }
    }
    live
}

#[cfg(test)]
mod tests {
    use oplus_dsl::parse::parse;
    use oplus_dsl::testing::texts::SUMS;

    use super::*;
    use crate::cpu::plan::{Layout, Request};

    #[test]
    fn the_last_state_is_taken_while_the_axis_streams_past() {
        let program = parse(SUMS).unwrap();
        for len in [1, 100, 1 << 25] {
            let sizes = [4, len];
            let layouts = |axes: &[Axis]| Layout { offset: 0, strides: vec![1; axes.len()] };
            let request = Request {
                sizes: sizes.to_vec(),
                inputs: program.params.iter().map(|param| Some(layouts(&param.axes))).collect(),
                outputs: program.outputs.iter().map(|output| layouts(&output.axes)).collect(),
            };
            let borders = Borders::new(&program, &request, false);
            let drafts = Drafts::new(&program, &sizes, &borders, false);
            assert_eq!(drafts.stages.len(), 1, "{:?}", drafts.stages);
            assert_eq!(drafts.stages[0].streamed, Some((Axis(1), false)));
        }
    }
}
