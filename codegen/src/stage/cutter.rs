//! The tensors that are stored between stages, and when they are computed.
//!
//! A value must be stored for its uses: in an element of a scan where it depends on another scan, at a position that the kernel does not
//! reach, or beside states along another axis or in another direction. Each output and each
//! stored value is a *root*, with the set of values that it reads from memory. Roots of one level do not wait for each
//! other; a root runs its scans itself unless some tensor holds their states anyway.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Op, Program, Value};

use super::contraction::contraction;
use super::course::{Course, course};
use super::narrow::narrowest;
use super::needs::{Context, Needs, atoms, needs, position_axis};
use super::reduction::Sum;
use super::{Sink, Temporary};

/// A value that a stage writes.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// The value.
    pub value: Value,
    /// The axes of the tensor, in memory order.
    pub axes: Vec<Axis>,
    /// The type that the tensor stores.
    pub elem: Elem,
    /// The tensor.
    pub sink: Sink,
    /// The values that it reads from memory.
    pub read: BTreeSet<Value>,
    /// The course of the scans that run with it.
    pub home: Option<Course>,
    /// The axis of its positions.
    pub position: Option<Axis>,
    /// The axes of its contractions.
    pub contracted: AxisSet,
    /// The number of stages that wait for each other up to its own; 0 until it is settled.
    pub level: u32,
}

/// A scan that runs in some stage.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// The values that its elements and its initial state read from memory.
    pub read: BTreeSet<Value>,
    /// One more than the highest level of those.
    pub level: u32,
}

/// The course and the level at which a state can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    level: u32,
    course: Course,
}

/// The way to store a value that depends on several states, for a later stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storing {
    /// As it is.
    Whole,
    /// As the values over the fewest axes that it is a map of.
    Narrow {
        /// Whether some value was stored so.
        is_narrower: bool,
    },
}

/// The state of the cut.
pub(super) struct Cutter<'p> {
    /// The program.
    pub program: &'p Program,
    /// The tuples of contractions.
    sums: BTreeSet<Value>,
    /// The axis of partial sums.
    pub partial_axis: Option<Axis>,
    /// How values that depend on several states are stored.
    pub storing: Storing,
    /// Whether a stage of final states also takes those that lack some of its outer axes.
    pub joins_narrower: bool,
    /// The outputs, then the other stored values.
    pub roots: Vec<Root>,
    /// The root that holds a value exactly.
    pub stored: HashMap<Value, usize>,
    /// The scans met so far, by their tuples.
    pub scans: HashMap<Value, Running>,
    /// The temporary tensors so far.
    pub buffers: Vec<Temporary>,
}

impl<'p> Cutter<'p> {
    pub(super) fn new(
        program: &'p Program,
        sums: BTreeSet<Value>,
        partial_axis: Option<Axis>,
        storing: Storing,
    ) -> Cutter<'p> {
        let outputs = program.outputs.iter().enumerate();
        let roots = outputs.map(|(i, o)| Root::new(o.value, o.axes.clone(), o.elem, Sink::Output(i as u32)));
        let mut cutter = Cutter {
            program,
            sums,
            partial_axis,
            storing,
            joins_narrower: false,
            roots: roots.collect(),
            stored: HashMap::new(),
            scans: HashMap::new(),
            buffers: vec![],
        };
        for i in 0..cutter.roots.len() {
            if cutter.is_exact(&cutter.roots[i]) {
                cutter.stored.entry(cutter.roots[i].value).or_insert(i);
            }
        }
        cutter
    }

    /// Whether a root's tensor holds its value with every bit, and over no other axes.
    fn is_exact(&self, root: &Root) -> bool {
        let node = self.program.node(root.value);
        let rounded = matches!(node.op, Op::Convert(elem, _) if elem == root.elem);
        let axes: AxisSet = root.axes.iter().copied().collect();
        axes == node.axes && (rounded || node.ty.elem() == Some(root.elem))
    }

    /// Settles all outputs.
    pub(super) fn resolve_all(&mut self) {
        for root in 0..self.program.outputs.len() {
            self.resolve(root);
        }
    }

    /// Settles a root: the values that it reads from memory, the course that it is computed in, and its level.
    pub(super) fn resolve(&mut self, root: usize) {
        while self.roots[root].level == 0 {
            for value in self.step(root) {
                self.store(value);
                self.roots[root].read.insert(value);
            }
        }
    }

    /// The values that a root must read besides those it reads already; settles it when there are none.
    fn step(&mut self, root: usize) -> BTreeSet<Value> {
        let Root { value, read, axes, .. } = self.roots[root].clone();
        let needs = self.needs(value, &read, Context::Here);
        self.roots[root].contracted = needs.contracted;
        if !needs.misplaced.is_empty() {
            return self.frontiers(&needs.misplaced, &read);
        }
        let inside = |v: &Value| course(self.program, *v).is_some_and(|c| axes.contains(&c.axis));
        let early: BTreeSet<Value> = needs.finals.iter().copied().filter(inside).collect();
        if !early.is_empty() {
            return early;
        }
        let reads = self.level_of(&read);
        let takes = self.runs(needs.states.union(&needs.finals), &read);
        let Some(home) = takes.iter().map(|(_, run)| *run).max_by_key(|run| run.level) else {
            return self.settle(root, None, reads + 1, &needs.positions);
        };
        let apart = |v: Value, run: Run| run.course != home.course || (reads >= home.level && self.is_held(v, root));
        let apart: BTreeSet<Value> = takes.iter().filter(|(v, run)| apart(*v, *run)).map(|(v, _)| *v).collect();
        if apart.is_empty() {
            self.settle(root, Some(home.course), home.level.max(reads + 1), &needs.positions)
        } else {
            apart
        }
    }

    /// Whether another root than this one holds a value.
    fn is_held(&self, value: Value, by: usize) -> bool {
        self.stored.get(&value).is_some_and(|root| *root != by)
    }

    /// Settles a root, unless it has positions that its stage does not allow: those it must read.
    fn settle(
        &mut self,
        root: usize,
        home: Option<Course>,
        level: u32,
        positions: &BTreeSet<Value>,
    ) -> BTreeSet<Value> {
        let value = self.roots[root].value;
        let fixed = |p: &Value| !matches!(self.program.node(*p).op, Op::Shift { .. });
        let first = positions.iter().find(|p| fixed(p)).and_then(|p| position_axis(self.program, *p));
        let own = position_axis(self.program, value).filter(|_| fixed(&value));
        let axis = home.map(|course| course.axis).or(own).or(first);
        let elsewhere = self.foreign(positions, axis, |p| p == value && home.is_none());
        if elsewhere.is_empty() {
            let position = if positions.iter().any(fixed) { axis } else { None };
            self.roots[root] = Root { home, position, level, ..self.roots[root].clone() };
        }
        elsewhere
    }

    /// The `first` and `last` along other axes than `axis`, and each `starts` and `gather`; without those that are allowed anyway.
    fn foreign(
        &self,
        positions: &BTreeSet<Value>,
        axis: Option<Axis>,
        allowed: impl Fn(Value) -> bool,
    ) -> BTreeSet<Value> {
        let foreign = |p: Value| match self.program.node(p).op {
            Op::Starts { .. } | Op::Gather { .. } => true,
            Op::First { axis: own, .. } | Op::Last { axis: own, .. } => Some(own) != axis,
            _ => false,
        };
        positions.iter().copied().filter(|p| foreign(*p) && !allowed(*p)).collect()
    }

    /// The values to store so that others become point values: the states beneath these values, or the values themselves where that is
    /// less to store, or values over fewer axes that they are maps of, where such are wanted.
    fn frontiers(&mut self, values: &BTreeSet<Value>, read: &BTreeSet<Value>) -> BTreeSet<Value> {
        let mut frontiers = BTreeSet::new();
        for value in values {
            let atoms = atoms(self.program, *value, read, |v| self.stored.contains_key(&v));
            let new = atoms.iter().filter(|v| !self.stored.contains_key(v)).count();
            frontiers.extend(match new {
                0 | 1 => atoms,
                _ => self.wholly(*value, read),
            });
        }
        frontiers
    }

    /// The values that are stored for one that depends on several states: itself, or the values that it is a map of.
    fn wholly(&mut self, value: Value, read: &BTreeSet<Value>) -> BTreeSet<Value> {
        let itself = BTreeSet::from([value]);
        let Storing::Narrow { is_narrower } = &mut self.storing else { return itself };
        let narrowest = narrowest(self.program, value, read);
        *is_narrower |= narrowest != itself;
        narrowest
    }

    /// Makes sure that some root holds a value exactly.
    fn store(&mut self, value: Value) {
        let root = self.stored.get(&value).copied().unwrap_or_else(|| self.add_buffer(value));
        self.resolve(root);
    }

    pub(super) fn add_buffer(&mut self, value: Value) -> usize {
        let node = self.program.node(value);
        let (axes, elem) = (self.memory_order(node.axes), node.ty.elem().unwrap_or(Elem::F32));
        let sink = Sink::Buffer(self.buffers.len() as u32);
        self.buffers.push(Temporary { name: format!("v{}", value.0), axes: axes.clone(), elem });
        self.roots.push(Root::new(value, axes, elem, sink));
        self.stored.insert(value, self.roots.len() - 1);
        self.roots.len() - 1
    }

    /// [`memory_order`]; the axis of partial sums is the last but one: neighbouring lanes hold neighbouring steps of one of them.
    fn memory_order(&self, axes: AxisSet) -> Vec<Axis> {
        if let Some(part) = self.partial_axis.filter(|part| axes.contains(*part)) {
            let mut order = self.memory_order(axes.without(part));
            order.insert(order.len().saturating_sub(1), part);
            return order;
        }
        memory_order(self.program, axes)
    }

    /// The highest level of the roots that hold these values; 0 when there are none.
    fn level_of(&self, read: &BTreeSet<Value>) -> u32 {
        read.iter().map(|v| self.roots[self.stored[v]].level).max().unwrap_or(0)
    }

    /// The course and the level of each of these states and final states.
    fn runs<'v>(&mut self, takes: impl IntoIterator<Item = &'v Value>, read: &BTreeSet<Value>) -> Vec<(Value, Run)> {
        let takes = takes.into_iter().filter_map(|v| Some((*v, course(self.program, *v)?)));
        let takes: Vec<_> = takes.collect();
        takes.into_iter().map(|(v, course)| (v, Run { level: self.level_of_state(v, read), course })).collect()
    }

    /// The level of the scan that a field belongs to, or the highest beneath a final state.
    fn level_of_state(&mut self, value: Value, read: &BTreeSet<Value>) -> u32 {
        if let Op::Field(tuple, _) = self.program.node(value).op {
            return self.running(tuple).level;
        }
        let fields = self.needs(value, read, Context::Here).ended;
        fields.into_iter().map(|v| self.level_of_state(v, read)).max().unwrap_or(0)
    }

    /// Stores what a scan's elements and initial state must read from memory.
    fn running(&mut self, tuple: Value) -> Running {
        if let Some(known) = self.scans.get(&tuple) {
            return known.clone();
        }
        let (axis, operands) = match &self.program.node(tuple).op {
            op @ (Op::Scan { axis, .. } | Op::Reduce { axis, .. }) => (Some(*axis), op.operands().into_vec()),
            _ => (None, vec![]),
        };
        let mut read = BTreeSet::new();
        loop {
            let needs: Vec<_> = operands.iter().map(|v| self.needs(*v, &read, Context::Anywhere)).collect();
            let misplaced = needs.iter().flat_map(|n| n.misplaced.iter().copied()).collect();
            let mut new = self.frontiers(&misplaced, &read);
            new.extend(needs.iter().flat_map(|n| self.foreign(&n.positions, axis, |_| false)));
            if new.is_empty() {
                break;
            }
            new.iter().for_each(|v| self.store(*v));
            read.append(&mut new);
        }
        let running = Running { level: 1 + self.level_of(&read), read };
        self.scans.insert(tuple, running.clone());
        running
    }

    /// Whether some root or scan reads the value of a root.
    pub(super) fn is_read(&self, root: usize) -> bool {
        let value = self.roots[root].value;
        let held = self.stored.get(&value) == Some(&root);
        held && (self.roots.iter().any(|r| r.read.contains(&value))
            || self.scans.values().any(|s| s.read.contains(&value)))
    }

    /// The axis of partial sums of a root that has some.
    pub(super) fn own_partial_axis(&self, root: &Root) -> Option<Axis> {
        self.partial_axis.filter(|part| !root.contracted.is_empty() && root.axes.contains(part))
    }

    /// The values that a value is computed from, up to those in `read`.
    pub(super) fn needs(&self, value: Value, read: &BTreeSet<Value>, context: Context) -> Needs {
        needs(self.program, &self.sums, value, read, context)
    }

    /// The contraction of a tuple that runs with its reader.
    pub(super) fn contraction(&self, tuple: Value, read: &BTreeSet<Value>) -> Option<Sum> {
        contraction(self.program, &self.sums, tuple, read)
    }
}

impl Root {
    fn new(value: Value, axes: Vec<Axis>, elem: Elem, sink: Sink) -> Root {
        let (read, contracted) = (BTreeSet::new(), AxisSet::EMPTY);
        Root { value, axes, elem, sink, read, home: None, position: None, contracted, level: 0 }
    }
}

/// Axes in the order of the first tensor that has them all, else of their declaration.
pub(super) fn memory_order(program: &Program, axes: AxisSet) -> Vec<Axis> {
    let tensors = program.params.iter().map(|p| &p.axes).chain(program.outputs.iter().map(|o| &o.axes));
    let has_all = |tensor: &&Vec<Axis>| axes.minus(tensor.iter().copied().collect()).is_empty();
    match tensors.into_iter().find(has_all) {
        Some(tensor) => tensor.iter().copied().filter(|a| axes.contains(*a)).collect(),
        None => axes.iter().collect(),
    }
}
