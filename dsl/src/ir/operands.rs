//! The values that operations and operators depend on.

use smallvec::{SmallVec, smallvec};

use super::{Axis, AxisSet, Op, Operator, Value};

/// The operands of an operation. Those of all but scans and reductions take no memory of the heap.
pub type Operands<V = Value> = SmallVec<[V; 3]>;

impl Op {
    /// The operands, in order.
    pub fn operands(&self) -> Operands {
        match self {
            Op::Param(_) | Op::Input(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => smallvec![],
            Op::Unary(_, a) | Op::Convert(_, a) | Op::Broadcast(a) | Op::Field(a, _) => smallvec![*a],
            Op::Binary(_, a, b) => smallvec![*a, *b],
            Op::Select(c, a, b) => smallvec![*c, *a, *b],
            Op::Reduce { elements, .. } => elements.iter().copied().collect(),
            Op::Scan { elements, init, .. } => elements.iter().chain(init).copied().collect(),
            Op::Last { value, empty, .. } | Op::First { value, empty, .. } => smallvec![*value, *empty],
            Op::Shift { value, fill, .. } => smallvec![*value, *fill],
            Op::MatrixScan(scan) => scan.operands(),
            Op::Starts { offsets, .. } => smallvec![*offsets],
            Op::Gather { value, index, inverse, .. } => smallvec![*value, *index, *inverse],
        }
    }

    /// Replaces every operand by what `f` gives for it.
    #[must_use]
    pub fn map_operands(&self, mut f: impl FnMut(Value) -> Value) -> Op {
        let mut op = self.clone();
        op.operands_mut().into_iter().for_each(|v| *v = f(*v));
        op
    }

    /// The operands, in order, to be replaced.
    pub fn operands_mut(&mut self) -> Operands<&mut Value> {
        match self {
            Op::Param(_) | Op::Input(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => smallvec![],
            Op::Unary(_, a) | Op::Convert(_, a) | Op::Broadcast(a) | Op::Field(a, _) => smallvec![a],
            Op::Binary(_, a, b) => smallvec![a, b],
            Op::Select(c, a, b) => smallvec![c, a, b],
            Op::Reduce { elements, .. } => elements.iter_mut().collect(),
            Op::Scan { elements, init, .. } => elements.iter_mut().chain(init).collect(),
            Op::Last { value, empty, .. } | Op::First { value, empty, .. } => smallvec![value, empty],
            Op::Shift { value, fill, .. } => smallvec![value, fill],
            Op::MatrixScan(scan) => scan.operands_mut(),
            Op::Starts { offsets, .. } => smallvec![offsets],
            Op::Gather { value, index, inverse, .. } => smallvec![value, index, inverse],
        }
    }

    /// Replaces every axis that the operation names by what `f` gives for it.
    pub fn map_axes(&mut self, f: impl Fn(Axis) -> Axis) {
        match self {
            Op::Index(axis) | Op::Size(axis) => *axis = f(*axis),
            Op::Scan { axis, .. } | Op::Reduce { axis, .. } | Op::Shift { axis, .. } => *axis = f(*axis),
            Op::First { axis, .. } | Op::Last { axis, .. } => *axis = f(*axis),
            Op::Starts { axis, list, .. } => (*axis, *list) = (f(*axis), f(*list)),
            Op::Gather { axis, to, .. } => (*axis, *to) = (f(*axis), f(*to)),
            Op::MatrixScan(scan) => scan.map_axes(f),
            Op::Param(_) | Op::Input(_) | Op::Const(_) | Op::Unary(..) | Op::Binary(..) => {}
            Op::Select(..) | Op::Convert(..) | Op::Broadcast(_) | Op::Field(..) => {}
        }
    }

    /// Whether the operation is a map: its value at an index depends on its operands at that index only.
    pub fn is_map(&self) -> bool {
        matches!(self, Op::Unary(..) | Op::Binary(..) | Op::Select(..) | Op::Convert(..) | Op::Broadcast(_))
    }
}

impl Operator {
    /// Which fields of l and r each field of the combination depends on: bit k for input k (l then r).
    pub fn dependencies(&self) -> Vec<u64> {
        let mut of: Vec<u64> = Vec::with_capacity(self.body.len());
        for node in &self.body {
            let own = if let Op::Input(k) = node.op { 1u64.checked_shl(k).unwrap_or(0) } else { 0 };
            let known = |v: &Value| of.get(v.0 as usize).copied().unwrap_or(0);
            of.push(node.op.operands().iter().map(known).fold(own, |all, set| all | set));
        }
        self.combine.iter().map(|v| of.get(v.0 as usize).copied().unwrap_or(0)).collect()
    }

    /// The axes of each field of a scan's states (without the scan axis), from those of its elements and init:
    /// the least sets closed under the dependencies of `combine`.
    pub fn field_axes(&self, given: &[AxisSet]) -> Vec<AxisSet> {
        let (n, dependencies) = (self.fields.len(), self.dependencies());
        let mut axes = given.to_vec();
        for _ in 0..n {
            for (field, set) in dependencies.iter().enumerate().take(n) {
                for k in (0..2 * n.min(32)).filter(|k| set >> k & 1 == 1) {
                    axes[field] = axes[field].union(axes[k % n]);
                }
            }
        }
        axes
    }

    /// The index of a field.
    pub fn field(&self, name: &str) -> Option<u32> {
        self.fields.iter().position(|f| f.name == name).map(|k| k as u32)
    }
}
