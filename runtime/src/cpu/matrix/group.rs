//! Which values of a program are computed beside the states of matrices, at every step.
//!
//! Recurrences along one axis whose states have the same axes are one *group*. A value belongs to it if it varies along both axes of
//! the states' matrices, as S·q does, or is a sum of such a value over one of them, or is needed for one that does: those are large, or
//! few where they come from large ones, and so no tensor of all times is made of them. What is in no group is computed as in any program:
//! what the group reads of it is an *import*, what it reads of the group an *export*, or the value at one *end* of the axis.

use std::collections::HashSet;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, MatrixScan, Op, Program, Unary, Value};
use oplus_dsl::transition::is_sum;

/// The axes of a state's matrix that a value has at one step, beside the axes of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Nothing: one number.
    Number,
    /// The axis that the matrices of steps act on.
    Along,
    /// The other axis of the states.
    Across,
    /// Both.
    Whole,
    /// The axis that the matrices act on, twice: a whole matrix of a step.
    Square,
}

/// One group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) ty: Ty,
    pub(super) time: Axis,
    pub(super) along: Axis,
    /// The other axis of the states' matrices, if they have one.
    pub(super) across: Option<Axis>,
    /// The axes along which all is repeated.
    pub(super) lanes: Vec<Axis>,
    /// The recurrences.
    pub(super) scans: Vec<Value>,
    /// The other values that are computed at every step.
    pub(super) inside: HashSet<Value>,
    pub(super) imports: Vec<Value>,
    pub(super) exports: Vec<Value>,
    /// Nodes that take a value of the group at the last (or first) index of the time.
    pub(super) ends: Vec<End>,
}

/// A value at one end of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) node: Value,
    pub(super) of: Value,
    pub(super) last: bool,
}

/// The values that have been computed before a group runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The recurrences that ran.
    pub(super) ran: HashSet<Value>,
    /// Values that are tensors by then.
    pub(super) tensors: HashSet<Value>,
}

/// The operation of a recurrence.
pub(super) fn scan_of(program: &Program, value: Value) -> Option<&MatrixScan> {
    if let Op::MatrixScan(scan) = &program.node(value).op { Some(scan) } else { None }
}

impl Group {
    /// The next group that can run; `None` if there is no recurrence left.
    pub(super) fn next(program: &Program, known: &Known) -> Option<Group> {
        let values = || (0..program.nodes.len() as u32).map(Value);
        let waits = waits(program, known);
        let is_left = |v: &Value| scan_of(program, *v).is_some() && !known.ran.contains(v);
        let first = values().find(is_left)?;
        let (scan, node) = (scan_of(program, first)?, program.node(first));
        let is_alike = |v: &Value| {
            let own = program.node(*v);
            scan_of(program, *v).is_some_and(|other| {
                let ready = other.operands().iter().all(|operand| !waits[operand.0 as usize]);
                ready && (other.axis, other.along, own.axes, own.ty) == (scan.axis, scan.along, node.axes, node.ty)
            })
        };
        let scans: Vec<Value> = values().filter(is_left).filter(is_alike).collect();
        let across = across(program, &scans, scan, node.axes, &waits);
        let lanes = node.axes.without(scan.axis).without(scan.along);
        let lanes = across.map_or(lanes, |across| lanes.without(across)).iter().collect();
        let (inside, imports, exports, ends) = (HashSet::new(), vec![], vec![], vec![]);
        let (ty, time, along) = (node.ty, scan.axis, scan.along);
        let mut group = Group { ty, time, along, across, lanes, scans, inside, imports, exports, ends };
        group.choose(program, &waits, known);
        group.find_exports(program, &waits);
        Some(group)
    }

    /// The axes of a state's matrix that a value has at one step.
    pub(super) fn kind(&self, axes: AxisSet) -> Kind {
        match (axes.contains(self.along), self.across.is_some_and(|across| axes.contains(across))) {
            (true, true) => Kind::Whole,
            (true, false) => Kind::Along,
            (false, true) => Kind::Across,
            (false, false) => Kind::Number,
        }
    }

    /// All axes of the group.
    fn axes(&self) -> AxisSet {
        let own = self.lanes.iter().copied().chain([self.time, self.along]).chain(self.across);
        own.collect()
    }

    /// The second axes of dense matrices.
    pub(super) fn others(&self, program: &Program) -> Vec<Axis> {
        self.scans.iter().filter_map(|v| scan_of(program, *v)).flat_map(MatrixScan::others).collect()
    }

    fn choose(&mut self, program: &Program, waits: &[bool], known: &Known) {
        let count = program.nodes.len();
        let mut possible = vec![false; count];
        for at in 0..count {
            let value = Value(at as u32);
            possible[at] =
                self.scans.contains(&value) || waits[at] && self.is_possible(program, value, waits, &possible);
        }
        // Initial states are read before the first step computes anything.
        let inits: HashSet<Value> = self.scans.iter().filter_map(|v| Some(scan_of(program, *v)?.init)).collect();
        let is_read =
            |v: &Value| known.tensors.contains(v) || inits.contains(v) && !matches!(program.node(*v).op, Op::Const(_));
        let mut needed = vec![false; count];
        let mut imports = vec![];
        for at in (0..count).rev() {
            let value = Value(at as u32);
            let op = &program.nodes[at].op;
            let chosen = if self.scans.contains(&value) {
                true
            } else if possible[at] {
                needed[at] || self.is_large(program, value)
            } else {
                needed[at] && !is_read(&value) && self.is_computed(program, value, waits)
            };
            if chosen {
                op.operands().iter().for_each(|operand| needed[operand.0 as usize] = true);
                if !self.scans.contains(&value) {
                    self.inside.insert(value);
                }
            } else if needed[at] {
                imports.push(value);
            }
        }
        imports.reverse();
        self.imports = imports;
    }

    /// Whether a value that depends on the states can be computed at every step.
    fn is_possible(&self, program: &Program, value: Value, waits: &[bool], possible: &[bool]) -> bool {
        let node = program.node(value);
        let is_typed = node.ty == self.ty || node.ty == Ty::Tuple;
        let is_known = |v: &Value| possible[v.0 as usize] || self.is_import(program, *v, waits);
        is_typed
            && self.axes().contains_all(node.axes)
            && (self.is_map(program, value) || self.is_sum(program, value))
            && node.op.operands().iter().all(is_known)
    }

    /// Whether a value without the states can be read at every step.
    fn is_import(&self, program: &Program, value: Value, waits: &[bool]) -> bool {
        let node = program.node(value);
        let is_typed = node.ty == self.ty || node.ty == Ty::Bool;
        !waits[value.0 as usize] && is_typed && self.axes().contains_all(node.axes)
    }

    /// Whether a value that is needed, but does not depend on the states, is computed at every step instead of being read: a
    /// constant, or a map that varies along both axes of the matrices.
    fn is_computed(&self, program: &Program, value: Value, waits: &[bool]) -> bool {
        let node = program.node(value);
        match node.op {
            Op::Const(Literal::Float(_)) => true,
            _ => {
                self.is_import(program, value, waits)
                    && node.ty == self.ty
                    && self.kind(node.axes) == Kind::Whole
                    && self.is_map(program, value)
                    && node.op.operands().iter().all(|v| self.is_import(program, *v, waits))
            }
        }
    }

    /// Whether the operation is one of the maps that steps compute.
    fn is_map(&self, program: &Program, value: Value) -> bool {
        let node = program.node(value);
        match node.op {
            Op::Unary(Unary::Neg, _) => true,
            Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, ..) => true,
            Op::Select(c, ..) => program.node(c).ty == Ty::Bool,
            Op::Broadcast(a) => self.kind(program.node(a).axes) == self.kind(node.axes),
            _ => false,
        }
    }

    /// Whether the value is a sum over an axis of the matrices, or its tuple.
    fn is_sum(&self, program: &Program, value: Value) -> bool {
        match &program.node(value).op {
            Op::Reduce { axis, operator, elements } => {
                let is_own = *axis == self.along || Some(*axis) == self.across;
                is_own && is_sum(program.operator(*operator)) && program.node(elements[0]).axes.contains(*axis)
            }
            Op::Field(tuple, 0) => self.is_sum(program, *tuple),
            _ => false,
        }
    }

    /// Whether a value varies along both axes of the matrices, or is a sum of such a value.
    fn is_large(&self, program: &Program, value: Value) -> bool {
        let of = match program.node(value).op {
            Op::Field(tuple, _) => match &program.node(tuple).op {
                Op::Reduce { elements, .. } => elements[0],
                _ => value,
            },
            _ => value,
        };
        let both = if self.across.is_some() { Kind::Whole } else { Kind::Along };
        program.node(value).ty != Ty::Tuple && self.kind(program.node(of).axes) == both
    }

    fn find_exports(&mut self, program: &Program, waits: &[bool]) {
        let own = |v: &Value| self.scans.contains(v) || self.inside.contains(v) && waits[v.0 as usize];
        let (mut exports, mut ends) = (HashSet::new(), vec![]);
        for (at, node) in program.nodes.iter().enumerate().filter(|(at, _)| !own(&Value(*at as u32))) {
            let end = match node.op {
                Op::Last { axis, value, .. } if axis == self.time => Some((value, true)),
                Op::First { axis, value, .. } if axis == self.time => Some((value, false)),
                _ => None,
            };
            for (k, operand) in node.op.operands().into_iter().enumerate().filter(|(_, v)| own(v)) {
                match end {
                    Some((of, last)) if k == 0 => ends.push(End { node: Value(at as u32), of, last }),
                    _ => _ = exports.insert(operand),
                }
            }
        }
        exports.extend(program.outputs.iter().map(|output| output.value).filter(own));
        let mut exports: Vec<Value> = exports.into_iter().collect();
        exports.sort();
        (self.exports, self.ends) = (exports, ends);
    }
}

/// For every value, whether it depends on a recurrence that did not run.
fn waits(program: &Program, known: &Known) -> Vec<bool> {
    let mut waits: Vec<bool> = vec![];
    for (at, node) in program.nodes.iter().enumerate() {
        let value = Value(at as u32);
        let is_scan = scan_of(program, value).is_some() && !known.ran.contains(&value);
        let depends = || node.op.operands().iter().any(|v| waits[v.0 as usize]);
        waits.push(!known.tensors.contains(&value) && (is_scan || depends()));
    }
    waits
}

/// The other axis of the states' matrices: one that values of the states are summed over, else one that no factor has.
fn across(program: &Program, scans: &[Value], scan: &MatrixScan, axes: AxisSet, waits: &[bool]) -> Option<Axis> {
    let rest = axes.without(scan.axis).without(scan.along);
    let summed = program.nodes.iter().find_map(|node| match &node.op {
        Op::Reduce { axis, elements, .. } if rest.contains(*axis) && waits[elements[0].0 as usize] => {
            (program.node(elements[0]).axes.contains(scan.along)).then_some(*axis)
        }
        _ => None,
    });
    let factors = scans.iter().filter_map(|v| scan_of(program, *v));
    let factors =
        factors.flat_map(|scan| std::iter::once(scan.decay).chain(scan.terms.iter().flat_map(|t| t.values())));
    let has: AxisSet = factors.fold(AxisSet::EMPTY, |all, v| all.union(program.node(v).axes));
    summed.or_else(|| rest.minus(has).iter().last()).or_else(|| rest.iter().last())
}
