//! The values that a value is computed from, when some of those beneath it are read from memory.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, AxisSet, Op, Program, Value};
use rustc_hash::FxHashSet;

use super::contraction::contraction;
use super::course::{Course, course, depends};

/// The values that a value is computed from: see [`needs`].
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Fields of scans' states at the point.
    pub states: BTreeSet<Value>,
    /// Fields of scans' states beneath `finals`.
    pub ended: BTreeSet<Value>,
    /// Nodes that take final states: fields of reductions; `last` (in reverse `first`) of states.
    pub finals: BTreeSet<Value>,
    /// Positions: `shift`, `first`, `last`, `starts`, `gather`.
    pub positions: BTreeSet<Value>,
    /// Values that depend on a scan, where only point values can stand.
    pub misplaced: BTreeSet<Value>,
    /// The axes of contractions.
    pub contracted: AxisSet,
}

/// The point at which a value is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Context {
    /// At the point itself: states and final states can be had.
    Here,
    /// One step earlier in this course: states can be had, as exclusive ones.
    Before(Course),
    /// At the end of this course: its inclusive states can be had.
    End(Course),
    /// Anywhere: point values only.
    Anywhere,
}

/// The values that `value` is computed from, up to those in `read`; the tuples `sums` are contractions.
pub(super) fn needs(
    program: &Program,
    sums: &BTreeSet<Value>,
    value: Value,
    read: &BTreeSet<Value>,
    context: Context,
) -> Needs {
    let (depends, seen, open) = (OnceCell::new(), FxHashSet::default(), vec![(value, context)]);
    let mut walk = Walk { program, sums, read, depends, seen, open, needs: Needs::default() };
    walk.run();
    walk.needs
}

/// Whether each value of the program depends on a field of a scan, other than through the values that are read.
pub(super) fn dependent(program: &Program, read: &BTreeSet<Value>) -> Vec<bool> {
    let mut dependent: Vec<bool> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let own = matches!(node.op, Op::Field(..)) || node.op.operands().iter().any(|v| dependent[v.0 as usize]);
        dependent.push(own && !read.contains(&Value(i as u32)));
    }
    dependent
}

/// Whether a `last` or `first` takes the final state of a scan, and nothing else of scans.
pub(super) fn is_final(program: &Program, value: Value, read: &BTreeSet<Value>) -> bool {
    let (Op::Last { value: inner, empty, .. } | Op::First { value: inner, empty, .. }) = &program.node(value).op else {
        return matches!(&program.node(value).op, Op::Field(t, _) if is_reduction(program, *t));
    };
    let Some(course) = course(program, value) else { return false };
    let inner = needs(program, &BTreeSet::new(), *inner, read, Context::End(course));
    !inner.ended.is_empty() && inner.misplaced.is_empty() && !depends(program, *empty, read)
}

/// Whether a tuple is a reduction's.
pub(super) fn is_reduction(program: &Program, tuple: Value) -> bool {
    matches!(program.node(tuple).op, Op::Reduce { .. })
}

/// The axis of a position.
pub(super) fn position_axis(program: &Program, value: Value) -> Option<Axis> {
    match program.node(value).op {
        Op::Shift { axis, .. } | Op::First { axis, .. } | Op::Last { axis, .. } | Op::Starts { axis, .. } => Some(axis),
        _ => None,
    }
}

/// The fields, final states and values `held` in memory beneath a value: reading them makes it a point value.
pub(super) fn atoms(
    program: &Program,
    value: Value,
    read: &BTreeSet<Value>,
    held: impl Fn(Value) -> bool,
) -> BTreeSet<Value> {
    let (mut atoms, mut seen, mut stack) = (BTreeSet::new(), FxHashSet::default(), vec![value]);
    while let Some(value) = stack.pop() {
        if !seen.insert(value) || !depends(program, value, read) {
            continue;
        }
        let op = &program.node(value).op;
        if matches!(op, Op::Field(..)) || held(value) || is_final(program, value, read) {
            atoms.insert(value);
        } else {
            stack.extend(op.operands());
        }
    }
    atoms
}

struct Walk<'a> {
    program: &'a Program,
    sums: &'a BTreeSet<Value>,
    read: &'a BTreeSet<Value>,
    /// Whether each value depends on a scan; found when something asks.
    depends: OnceCell<Vec<bool>>,
    seen: FxHashSet<(Value, Context)>,
    open: Vec<(Value, Context)>,
    needs: Needs,
}

impl Walk<'_> {
    fn run(&mut self) {
        while let Some((value, context)) = self.open.pop() {
            if !self.read.contains(&value) && self.seen.insert((value, context)) {
                self.visit(value, context);
            }
        }
    }

    fn depends(&self, value: Value) -> bool {
        self.depends.get_or_init(|| dependent(self.program, self.read))[value.0 as usize]
    }

    fn visit(&mut self, value: Value, context: Context) {
        if context == Context::Anywhere && self.depends(value) {
            self.needs.misplaced.insert(value);
            return;
        }
        let program = self.program;
        match &program.node(value).op {
            Op::Field(tuple, _) => self.state(value, *tuple, context),
            Op::Shift { axis, by, value: inner, fill } => {
                self.needs.positions.insert(value);
                self.shift(Course { axis: *axis, reverse: *by < 0 }, by.unsigned_abs(), *inner, context);
                self.open.push((*fill, if context == Context::Here { Context::Here } else { Context::Anywhere }));
            }
            Op::Last { value: inner, empty, .. } | Op::First { value: inner, empty, .. } => {
                self.needs.positions.insert(value);
                self.end(value, *inner, context);
                self.open.push((*empty, Context::Anywhere));
            }
            Op::Starts { offsets, .. } => {
                self.needs.positions.insert(value);
                self.open.push((*offsets, Context::Anywhere));
            }
            op @ Op::Gather { .. } => {
                self.needs.positions.insert(value);
                self.open.extend(op.operands().into_iter().map(|v| (v, Context::Anywhere)));
            }
            op => self.open.extend(op.operands().into_iter().map(|v| (v, context))),
        }
    }

    /// A field of a scan or of a reduction.
    fn state(&mut self, value: Value, tuple: Value, context: Context) {
        let own = course(self.program, value);
        let Op::Scan { exclusive, .. } = self.program.node(tuple).op else {
            if let Some(sum) =
                contraction(self.program, self.sums, tuple, self.read).filter(|_| context == Context::Here)
            {
                self.needs.contracted = self.needs.contracted.with(sum.axis);
                return self.open.push((sum.element, context));
            }
            let kind = if context == Context::Here { &mut self.needs.finals } else { &mut self.needs.misplaced };
            kind.insert(value);
            return;
        };
        let kind = match context {
            Context::Here => &mut self.needs.states,
            Context::Before(course) if own == Some(course) && !exclusive => &mut self.needs.states,
            Context::End(course) if own == Some(course) && !exclusive => &mut self.needs.ended,
            _ => &mut self.needs.misplaced,
        };
        kind.insert(value);
    }

    /// The operand of a shift by `steps` in the direction of `course`.
    fn shift(&mut self, course: Course, steps: u64, inner: Value, context: Context) {
        let before = context == Context::Here && steps == 1 && self.depends(inner);
        self.open.push((inner, if before { Context::Before(course) } else { Context::Anywhere }));
    }

    /// The operand of a `last` or `first`.
    fn end(&mut self, value: Value, inner: Value, context: Context) {
        match course(self.program, value) {
            Some(course) if context == Context::Here && is_final(self.program, value, self.read) => {
                self.needs.finals.insert(value);
                self.open.push((inner, Context::End(course)));
            }
            _ => self.open.push((inner, Context::Anywhere)),
        }
    }
}
