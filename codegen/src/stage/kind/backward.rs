//! The values that a backward-scan stage computes at each state and step, and the sums and outputs that they go to.

use std::collections::BTreeSet;

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, OperatorId, Output, Program, Value};
use oplus_dsl::typing::TypeError;

use super::contracted::check_params;
use super::hoist::hoist_backward_scan;
use super::scale::share_scaled;
use crate::stage::{OppositeScans, Refusal, Stage};

/// Sums over rows that a block has room for.
const ROW_SUMS: usize = 4;

/// A sum over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The tuple of the reduction.
    pub tuple: Value,
    /// The value that is summed.
    pub element: Value,
}

/// The kind of an output of the stage: a sum, a map of sums, or a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A map of sums over the state axis, at every row and step.
    Body,
    /// The sum over rows of this number, at every state and step.
    Rows(usize),
    /// The sum over time of this number, of a map of states.
    States(usize),
    /// The sum over time of this number, of a value of rows.
    Steps(usize),
    /// The cotangent of the initial state.
    Initial,
}

/// A backward-scan stage with work taken out of its inner loop, and its values by their roles in the walk.
///
/// ```text
/// after = before ⊕ element        cotangent = gain + decay[next]·cotangent[next]
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BackwardScan {
    /// The stage's program with work taken out of its inner loop; its axes and tensors are unchanged.
    pub program: Program,
    /// The scan axis.
    pub time: Axis,
    /// Whether the states go from the last step to the first.
    pub reverse: bool,
    /// The axis over which states are summed.
    pub state: Axis,
    /// The axes over which everything is computed apart.
    pub outer: AxisSet,
    /// The last of the outer axes.
    pub row: Option<Axis>,
    /// The field of the operator that is the state.
    pub field: u32,
    /// The state after a step.
    pub after: Value,
    /// The factor of a cotangent, one step earlier.
    pub decay: Value,
    /// The addend of a cotangent.
    pub gain: Value,
    /// The state before the first step, and the cotangent after the last.
    pub init: [Option<Value>; 2],
    /// The tuple of the states before each step.
    pub exclusive: Value,
    /// The tuple of the cotangents.
    pub back: Value,
    /// Sums over the state axis.
    pub sums: Vec<Sum>,
    /// Sums over rows.
    pub row_sums: Vec<Sum>,
    /// Sums over time of maps of states.
    pub state_totals: Vec<Sum>,
    /// Sums over time of values of rows.
    pub row_totals: Vec<Sum>,
    /// The kind of each output.
    pub given: Vec<Given>,
}

impl BackwardScan {
    /// The walk back of a stage with two scans.
    pub(super) fn of(stage: &Stage) -> Result<BackwardScan, Refusal> {
        let scans = stage.opposite_scans().ok_or(Refusal::OneDirection)?;
        check_params(stage)?;
        if stage.views.iter().any(|views| !views.is_empty()) {
            return Err(Refusal::Displaced);
        }
        let field = live_field(stage, &scans).ok_or(Refusal::SeveralFields)?;
        check_fields(&stage.program, [(scans.forward.operator, field), (scans.back.operator, 1)])?;
        let walk = BackwardScan::written_out(stage, &scans, field).ok_or(Refusal::NotWritten)?;
        if walk.sums_a_sum() {
            return Err(Refusal::SumOfSums);
        }
        if walk.maps_another_sum() {
            return Err(Refusal::MapOfSum);
        }
        match walk.row_sums.len() {
            0..=ROW_SUMS => Ok(walk),
            sums => Err(Refusal::RowSums { sums, most: ROW_SUMS }),
        }
    }

    fn written_out(stage: &Stage, scans: &OppositeScans<'_>, field: u32) -> Option<BackwardScan> {
        let outputs = stage.program.outputs.len();
        let outer = stage.outer_axes();
        let row = outer.iter().last();
        let (time, state, reverse) = (scans.forward.axis, scans.state, scans.forward.reverse);
        let written = written_out(&stage.program, scans, field).ok()?;
        let hoisted = hoist_backward_scan(&written, time, state, scans.back.inclusive?);
        let mut program = share_scaled(&hoisted, state);
        let roots: Vec<Value> = program.outputs.drain(outputs..).map(|o| o.value).collect();
        let [after, decay, gain, before, cotangent, ref init @ ..] = roots[..] else { return None };
        let tuple = |field: Value| if let Op::Field(tuple, _) = program.node(field).op { Some(tuple) } else { None };
        let init = init_values(scans, init);
        let (exclusive, back) = (tuple(before)?, tuple(cotangent)?);
        let mut walk = BackwardScan {
            program,
            time,
            reverse,
            state,
            outer,
            row,
            field,
            after,
            decay,
            gain,
            init,
            exclusive,
            back,
            sums: vec![],
            row_sums: vec![],
            state_totals: vec![],
            row_totals: vec![],
            given: vec![],
        };
        walk.find_sums();
        walk.given = (0..outputs).map(|k| walk.output(k)).collect::<Option<_>>()?;
        Some(walk)
    }

    fn find_sums(&mut self) {
        for (i, node) in self.program.nodes.clone().iter().enumerate() {
            let Op::Reduce { axis, elements, .. } = &node.op else { continue };
            let sum = Sum { tuple: Value(i as u32), element: elements[0] };
            let states = self.program.node(sum.element).axes.contains(self.state);
            let list = match *axis {
                own if own == self.state => &mut self.sums,
                own if own == self.time && states => &mut self.state_totals,
                own if own == self.time => &mut self.row_totals,
                _ => &mut self.row_sums,
            };
            list.push(sum);
        }
    }

    fn output(&self, k: usize) -> Option<Given> {
        let output = &self.program.outputs[k];
        let place = |sums: &[Sum], tuple| sums.iter().position(|s| s.tuple == tuple);
        if let Op::Field(tuple, _) = self.program.node(output.value).op {
            let rows = place(&self.row_sums, tuple).map(Given::Rows);
            let states = place(&self.state_totals, tuple).map(Given::States);
            let steps = place(&self.row_totals, tuple).map(Given::Steps);
            if let Some(given) = rows.or(states).or(steps) {
                return Some(given);
            }
        }
        let timed = output.axes.contains(&self.time);
        Some(if timed { Given::Body } else { Given::Initial })
    }

    /// The outer axes but that of the rows.
    pub(crate) fn others(&self) -> AxisSet {
        self.row.map_or(self.outer, |row| self.outer.without(row))
    }

    /// Whether a value changes in time.
    pub(crate) fn has_time(&self, value: Value) -> bool {
        self.program.node(value).axes.contains(self.time)
    }

    /// Whether a value depends on the cotangents.
    pub(crate) fn is_late(&self, value: Value) -> bool {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![value]);
        while let Some(value) = stack.pop() {
            match &self.program.node(value).op {
                Op::Field(tuple, _) if *tuple == self.back => return true,
                Op::Field(..) => {}
                op => stack.extend(op.operands().into_iter().filter(|v| seen.insert(*v))),
            }
        }
        false
    }

    /// Whether a summand at every state and step depends on a sum, which the lane has not finished then.
    fn sums_a_sum(&self) -> bool {
        let sums = [&self.sums, &self.row_sums, &self.state_totals].into_iter().flatten();
        let mut stack: Vec<Value> = sums.map(|sum| sum.element).collect();
        let mut seen = BTreeSet::new();
        while let Some(value) = stack.pop() {
            match &self.program.node(value).op {
                Op::Field(tuple, _) if matches!(self.program.node(*tuple).op, Op::Reduce { .. }) => return true,
                Op::Field(..) => {}
                op => stack.extend(op.operands().into_iter().filter(|v| seen.insert(*v))),
            }
        }
        false
    }

    /// Whether a value at every row and step depends on a sum over something else than the states.
    fn maps_another_sum(&self) -> bool {
        let (mut seen, mut stack) = (BTreeSet::new(), self.finished());
        while let Some(value) = stack.pop() {
            match &self.program.node(value).op {
                Op::Field(tuple, _) if self.sums.iter().all(|sum| sum.tuple != *tuple) => return true,
                Op::Field(..) => {}
                op => stack.extend(op.operands().into_iter().filter(|v| seen.insert(*v))),
            }
        }
        false
    }

    /// Whether decay and gain depend on no state, so that a segment of cotangents is linear in the one behind it.
    pub fn is_linear(&self) -> bool {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![self.decay, self.gain]);
        while let Some(value) = stack.pop() {
            match &self.program.node(value).op {
                Op::Field(..) => return false,
                op => stack.extend(op.operands().into_iter().filter(|v| seen.insert(*v))),
            }
        }
        true
    }

    /// The values that the walk needs at every state and step.
    pub(crate) fn walked(&self) -> Vec<Value> {
        let sums = [&self.sums, &self.row_sums, &self.state_totals];
        let elements = sums.into_iter().flatten().map(|s| s.element);
        [self.after, self.decay, self.gain].into_iter().chain(elements).collect()
    }

    /// The values that the walk needs at every row and step.
    pub(crate) fn finished(&self) -> Vec<Value> {
        let bodies = self.bodies().map(|k| self.program.outputs[k].value);
        bodies.chain(self.row_totals.iter().map(|s| s.element)).collect()
    }

    /// The outputs at every row and step.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = usize> {
        (0..self.given.len()).filter(|k| self.given[*k] == Given::Body)
    }
}

/// The one field of the states that the stage reads and that they depend on; `None` if there are several.
fn live_field(stage: &Stage, scans: &OppositeScans) -> Option<u32> {
    let tuples = [scans.forward.inclusive, scans.forward.exclusive];
    let own = |node: &oplus_dsl::ir::Node| match node.op {
        Op::Field(tuple, k) if tuples.contains(&Some(tuple)) => Some(k),
        _ => None,
    };
    let fields: BTreeSet<u32> = stage.program.nodes.iter().filter_map(own).collect();
    let field = *fields.first().filter(|_| fields.len() == 1)?;
    let operator = stage.program.operator(scans.forward.operator);
    let left = (1u64 << operator.fields.len()) - 1;
    (operator.dependencies()[field as usize] & left == 1 << field).then_some(field)
}

/// Refuses fields that are no numbers.
fn check_fields(program: &Program, own: [(OperatorId, u32); 2]) -> Result<(), Refusal> {
    let fields = own.map(|(operator, k)| &program.operator(operator).fields[k as usize]);
    match fields.into_iter().find(|field| field.ty != Ty::F32) {
        Some(field) => Err(Refusal::Field { field: field.name.clone(), ty: format!("{:?}", field.ty) }),
        None => Ok(()),
    }
}

/// The two initial values among the roots that are left.
fn init_values(scans: &OppositeScans, roots: &[Value]) -> [Option<Value>; 2] {
    let mut rest = roots.iter().copied();
    [&scans.forward, &scans.back].map(|scan| if scan.init.is_empty() { None } else { rest.next() })
}

/// The program with the state after a step written out as a map of the state before it. Its further outputs are that
/// value, decay and gain, fields of the states before each step and of the second scan, and the initial values.
fn written_out(program: &Program, scans: &OppositeScans, field: u32) -> Result<Program, TypeError> {
    let mut b = Builder::from_program(program.clone());
    let OppositeScans { forward, back, decay, .. } = *scans;
    let operator = program.operator(forward.operator);
    let scan = Op::Scan {
        axis: forward.axis,
        operator: forward.operator,
        elements: forward.elements.to_vec(),
        init: forward.init.to_vec(),
        reverse: forward.reverse,
        exclusive: true,
    };
    let tuple = b.append(scan, oplus_dsl::Ty::Tuple, oplus_dsl::ir::AxisSet::EMPTY)?;
    let before = b.field(tuple, field)?;
    let mut left = vec![];
    for (k, own) in operator.fields.iter().enumerate() {
        left.push(if k == field as usize { before } else { b.constant(own.ty, operator.identity[k])? });
    }
    let after = b.inline(operator, &left, forward.elements)?[field as usize];
    let after = input_first(&mut b, after)?;
    let cotangent = b.field(back.inclusive.unwrap_or(tuple), 1)?;
    let init = [forward.init.get(field as usize), back.init.get(1)].into_iter().flatten().copied();
    let roots: Vec<Value> = [after, decay, back.elements[1], before, cotangent].into_iter().chain(init).collect();
    let mut written = b.finish();
    written.outputs.clone_from(&program.outputs);
    let output = |value| Output { name: String::new(), axes: vec![], elem: oplus_dsl::Elem::F32, value };
    written.outputs.extend(roots.into_iter().map(output));
    Ok(written)
}

/// Puts the product of parameters first in a sum of two products. That product is then rounded with the sum; the other, which the
/// cotangent of the decay needs as well, is computed once.
fn input_first(b: &mut Builder, after: Value) -> Result<Value, TypeError> {
    let node = |v: Value| b.program().node(v).op.clone();
    let product = |v: Value| if let Op::Binary(Binary::Mul, x, y) = node(v) { Some([x, y]) } else { None };
    let state = |v: Value| matches!(node(v), Op::Field(..));
    match node(after) {
        Op::Binary(Binary::Add, x, y)
            if product(x).is_some_and(|xs| xs.into_iter().any(state)) && product(y).is_some() =>
        {
            b.binary(Binary::Add, y, x)
        }
        _ => Ok(after),
    }
}
