//! Scans and reductions.

use oplus_dsl::ir::{Axis, Op, Operator, Value};
use oplus_dsl::typing::Scope;

use super::*;
use crate::cpu::lanes::{Combination, SweepMode};
use crate::cpu::tile::{Combine, Products};

/// With fewer rows than this, scans of more steps than this are swept in parts.
const FEW: usize = 64;
/// With more rows, those of more steps than this.
const SHORT: usize = 256;

impl Lower<'_> {
    /// Lowers a scan or reduction: what can be computed ahead of the sweep over the whole tile, then the sweep.
    pub(super) fn combination(&mut self, tuple: Value) {
        let program = self.drafts.program;
        let (axis, operator, elements, init, direction): (_, _, _, &[Value], _) = match &program.node(tuple).op {
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => {
                (*axis, *operator, elements, init, Some((*reverse, *exclusive)))
            }
            Op::Reduce { axis, operator, elements } => (*axis, *operator, elements, &[], None),
            _ => return,
        };
        let operator = program.operator(operator);
        let products = self.weighted(tuple);
        let elements: &[Value] = if products.is_some() { &[] } else { elements };
        let elements: Vec<Reg> = elements.iter().map(|v| self.value(*v, &Moves::default())).collect();
        let init: Vec<Reg> = init.iter().map(|v| self.value(*v, &Moves::default())).collect();
        let fields = self.needed[tuple.0 as usize].iter().fold(0, |set, k| set | 1 << k);
        let (reverse, exclusive) = direction.unwrap_or_default();
        let mut results = Combination::new(operator, fields, exclusive);
        let mut totals = Combination::new(operator, results.total.kept(), false);
        totals.gives_totals = true;
        let mut ahead = match products {
            None => self.ahead(operator, &elements, &results),
            Some(_) => [vec![], vec![]],
        };
        if products.is_none() {
            self.share(&mut ahead, &mut results, &mut totals);
        }
        let is_scan = direction.is_some();
        let dims = self.state_dims(tuple, axis, is_scan);
        if products.is_none() {
            results.mode =
                self.mode(axis, is_scan, &dims, |single| results.lies_well(is_scan, |k| single(ahead[0][k])));
            totals.mode = self.mode(axis, is_scan, &dims, |single| totals.lies_well(false, |k| single(ahead[1][k])));
        }
        let (results, totals) = (Arc::new(results), Arc::new(totals));
        let keeps = |field: usize| results.total.kept() >> field & 1 == 1;
        let states: Vec<Option<Reg>> =
            (0..dims.len()).map(|k| keeps(k).then(|| self.fresh(operator.fields[k].ty, dims[k]))).collect();
        let along = 1 << self.position(axis);
        let output = |lower: &mut Self, k: usize| lower.fresh(operator.fields[k].ty, dims[k] | along);
        let outputs: Vec<Option<Reg>> =
            (0..dims.len()).map(|k| (is_scan && fields >> k & 1 == 1).then(|| output(self, k))).collect();
        for k in (0..dims.len()).filter(|k| fields >> k & 1 == 1) {
            let register = if is_scan { outputs[k] } else { states[k] };
            self.fields.extend(register.map(|register| ((tuple, k as u32), register)));
        }
        let combine = Combine {
            axis: self.position(axis),
            reverse,
            is_streamed: self.draft.streams(axis),
            opens: is_scan && !self.drafts.ordered && !results.folds() && self.is_handed_products(tuple),
            level: if is_scan && self.draft.streams(axis) { 1 + self.level(&ahead.concat()) } else { 0 },
            results,
            totals,
            elements: ahead.clone(),
            dims,
            states,
            init: init.clone(),
            outputs,
            products,
        };
        let of_products = combine.products.iter().flat_map(Products::registers);
        let operands = ahead.concat().into_iter().chain(init).chain(of_products).collect();
        let op = TileOp::Combine(Box::new(combine));
        self.code.instructions.push(Instruction { op, operands, result: None, spent: 0 });
    }

    /// How the steps along an axis are taken. The length of a scanned axis decides nothing, wherever it stands.
    /// `lies_well` tells whether blocks along contiguous memory are fast, given which elements are contiguous `f32`.
    fn mode(
        &self,
        axis: Axis,
        is_scan: bool,
        dims: &[u64],
        lies_well: impl Fn(&dyn Fn(Reg) -> bool) -> bool,
    ) -> SweepMode {
        let (at, varies) = (self.position(axis), dims.iter().fold(0, |all, dims| all | dims));
        let others: Vec<Axis> =
            (0..self.order.len()).filter(|k| *k != at && varies >> k & 1 == 1).map(|k| self.order[k]).collect();
        let is_beside_a_scan = others.iter().any(|other| self.drafts.borders.scanned.contains(*other));
        if self.drafts.ordered {
            return SweepMode::Sequential;
        }
        if !is_scan && !is_beside_a_scan {
            return SweepMode::Lanes;
        }
        let single = |element: Reg| {
            let Register { ty, dims, .. } = self.code.registers[element.0];
            ty == Ty::F32 && dims >> at & 1 == 1
        };
        if at + 1 == self.order.len() && lies_well(&single) {
            return SweepMode::Blocks;
        }
        let lanes = |is_one: &dyn Fn(Axis) -> bool| {
            let sizes = others.iter().filter(|other| is_one(**other));
            let sizes = sizes.map(|other| self.drafts.borders.size(*other, self.drafts.sizes));
            sizes.fold(1, usize::saturating_mul)
        };
        if !is_scan || lanes(&|other| self.position(other) > at) >= 4 {
            return SweepMode::Sequential;
        }
        // Where there are many rows, a tile has enough of the short ones.
        SweepMode::Parts { from: if lanes(&|_| true) < FEW { FEW } else { SHORT } }
    }

    /// Whether a scan may be part of a gradient whose carry between chunks is a product: its coefficients are those of the time
    /// visited before, or of all times.
    fn is_handed_products(&self, tuple: Value) -> bool {
        let nodes = &self.drafts.program.nodes;
        let Op::Scan { axis, elements, .. } = &nodes[tuple.0 as usize].op else { return false };
        let mut is_met = vec![false; nodes.len()];
        elements.iter().for_each(|v| is_met[v.0 as usize] = true);
        for at in (0..nodes.len()).rev().filter(|at| nodes[*at].axes.contains(*axis)) {
            if !is_met[at] {
                continue;
            }
            match &nodes[at].op {
                Op::Shift { axis: along, .. } if along == axis => return true,
                Op::Field(..) => {}
                op => op.operands().iter().for_each(|v| is_met[v.0 as usize] = true),
            }
        }
        elements.iter().any(|v| !nodes[v.0 as usize].axes.contains(*axis))
    }

    /// Over which axes of the tile each field's state varies.
    fn state_dims(&self, tuple: Value, axis: Axis, is_scan: bool) -> Vec<u64> {
        let program = self.drafts.program;
        let scope = Scope { program, nodes: &program.nodes, fields: None };
        let fields = scope.fields_of(&program.node(tuple).op).unwrap_or_default();
        fields.into_iter().map(|(_, axes)| self.dims(if is_scan { axes.without(axis) } else { axes })).collect()
    }

    /// The registers of the elements that the kernels sweep: for results, and for totals.
    fn ahead(&mut self, operator: &Operator, elements: &[Reg], of: &Combination) -> [Vec<Reg>; 2] {
        let mut known: HashMap<Value, Reg> = HashMap::new();
        [&of.scan.elements, &of.total.elements]
            .map(|values| values.iter().map(|v| self.body_value(operator, *v, elements, &mut known)).collect())
    }

    /// Gives kernels that are stepped in groups one list of elements, in which each register stands once: what has been turned for totals
    /// then serves results.
    fn share(&self, ahead: &mut [Vec<Reg>; 2], results: &mut Combination, totals: &mut Combination) {
        let all = [&results.scan, &results.total, &totals.scan, &totals.total];
        if all.iter().any(|kernel| kernel.program.is_none()) {
            return;
        }
        let mut shared: Vec<Reg> = vec![];
        let places = [1, 0].map(|which| {
            let mut place = |register: &Reg| {
                let known = shared.iter().position(|other| other == register);
                known.unwrap_or_else(|| {
                    shared.push(*register);
                    shared.len() - 1
                })
            };
            ahead[which].iter().map(&mut place).collect::<Vec<usize>>()
        });
        let types: Vec<Ty> = shared.iter().map(|register| self.code.registers[register.0].ty).collect();
        let [of_totals, of_results] = places;
        results.scan.read_from(&of_results, &types);
        for kernel in [&mut results.total, &mut totals.scan, &mut totals.total] {
            kernel.read_from(&of_totals, &types);
        }
        *ahead = [shared.clone(), shared];
    }

    /// A value of an operator's body that does not depend on its left operand.
    fn body_value(
        &mut self,
        operator: &Operator,
        value: Value,
        elements: &[Reg],
        known: &mut HashMap<Value, Reg>,
    ) -> Reg {
        let mut needed = vec![false; value.0 as usize + 1];
        needed[value.0 as usize] = true;
        for at in (0..needed.len()).rev() {
            if needed[at] {
                operator.body[at].op.operands().iter().for_each(|v| needed[v.0 as usize] = true);
            }
        }
        for at in (0..needed.len()).filter(|at| needed[*at]) {
            if !known.contains_key(&Value(at as u32)) {
                let register = self.body_node(operator, at, elements, known);
                known.insert(Value(at as u32), register);
            }
        }
        known[&value]
    }

    fn body_node(&mut self, operator: &Operator, at: usize, elements: &[Reg], known: &HashMap<Value, Reg>) -> Reg {
        let node = &operator.body[at];
        let operands = node.op.operands().iter().map(|v| known[v]).collect();
        let op = match &node.op {
            Op::Input(k) => return elements[*k as usize - operator.fields.len()],
            Op::Const(literal) => TileOp::Const(*literal),
            Op::Unary(op, _) => TileOp::Unary(*op),
            Op::Binary(op, ..) => TileOp::Binary(*op),
            Op::Convert(elem, _) => TileOp::Convert(*elem),
            _ => TileOp::Select,
        };
        self.emit(op, node.ty, operands)
    }

    /// How many streamed scans lie between some registers and the tensors.
    fn level(&self, registers: &[Reg]) -> usize {
        let mut levels = vec![0; self.code.registers.len()];
        for instruction in &self.code.instructions {
            let operands = instruction.operands.iter().map(|register| levels[register.0]).max().unwrap_or(0);
            let own =
                if let TileOp::Combine(combine) = &instruction.op { combine.level.max(operands) } else { operands };
            instruction.writes().iter().for_each(|register| levels[register.0] = own);
        }
        registers.iter().map(|register| levels[register.0]).max().unwrap_or(0)
    }
}
