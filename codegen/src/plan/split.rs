//! An axis split into an outer and an inner one.
//!
//! A program with the axis N has the same values as one with the axes N.outer and N, where index i of the old axis is
//! i = outer·n + inner and n is the size of the inner axis. A reduction over the old axis becomes one over the inner axis, and one of
//! its results over the outer axis: they agree by associativity. Recurrences of matrices that are too deep for one kernel become
//! independent ones of a depth that it takes, and a small sum.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Node, Op, Program, Value};
use oplus_dsl::rewrite::push;
use oplus_dsl::typing::Scope;
use oplus_dsl::verify::verify;

use super::{Call, Layout};

/// The outer axis. It comes before all others.
const OUTER: Axis = Axis(0);

/// The largest outer axis that is tried, so that the search ends soon whatever the size.
const MOST_OUTER: i64 = 64;

/// A split of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// The axis.
    pub axis: Axis,
    /// The size of the outer axis.
    pub outer: i64,
}

impl Split {
    /// The split with the smallest outer axis whose inner one has 2 to `most` indices. `None` where the axis has at most `most` indices,
    /// or no such divisor; outer axes above [`MOST_OUTER`] are not tried.
    pub(super) fn of(axis: Axis, size: i64, most: i64) -> Option<Split> {
        let divides = |outer: &i64| size % outer == 0 && (2..=most).contains(&(size / outer));
        (2..=MOST_OUTER).find(divides).filter(|_| size > most).map(|outer| Split { axis, outer })
    }

    /// The call as one of the program whose axis is split.
    pub(super) fn call(self, program: &Program, call: &Call) -> Call {
        let mut sizes = call.sizes.clone();
        let inner = sizes[self.axis.0 as usize] / self.outer;
        sizes[self.axis.0 as usize] = inner;
        sizes.insert(0, self.outer);
        let in_two = |axes: &[Axis], layout: &Layout| {
            let own = axes.iter().position(|axis| *axis == self.axis);
            let outer = own.map(|own| layout.strides[own].wrapping_mul(inner));
            Layout { strides: outer.into_iter().chain(layout.strides.iter().copied()).collect(), align: layout.align }
        };
        let params = program.params.iter().zip(&call.params);
        let params = params.map(|(param, layout)| layout.as_ref().map(|layout| in_two(&param.axes, layout))).collect();
        let outputs = program.outputs.iter().zip(&call.outputs);
        let outputs = outputs.map(|(output, layout)| in_two(&output.axes, layout)).collect();
        Call { sizes, params, outputs }
    }
}

/// The program with an axis split, of the same parameters and outputs; `None` where something goes along the axis in order.
pub(super) fn split(program: &Program, axis: Axis) -> Option<Program> {
    let mut splitter = Splitter { changed: outline(program, axis), inner: moved(axis) };
    let mut place: Vec<Value> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let value = splitter.node(Node { op: node.op.map_operands(|v| place[v.0 as usize]), ..node.clone() })?;
        place.push(value);
    }
    let mut changed = splitter.changed;
    changed.outputs.iter_mut().for_each(|output| output.value = place[output.value.0 as usize]);
    verify(&changed).is_ok().then_some(changed)
}

/// An axis of the program as an axis of the changed one, which has one more before all others.
fn moved(axis: Axis) -> Axis {
    Axis(axis.0 + 1)
}

/// The program without nodes. Tensors that had the axis have both, the outer one before all others: strides say where elements are.
fn outline(program: &Program, axis: Axis) -> Program {
    let mut changed = program.without_nodes();
    changed.axes.insert(0, outer_name(program, axis));
    let in_two = |axes: &mut Vec<Axis>| {
        let outer = axes.contains(&axis).then_some(OUTER);
        *axes = outer.into_iter().chain(axes.iter().copied().map(moved)).collect();
    };
    changed.params.iter_mut().for_each(|param| in_two(&mut param.axes));
    changed.outputs.iter_mut().for_each(|output| in_two(&mut output.axes));
    changed
}

/// A name that no other axis has.
fn outer_name(program: &Program, axis: Axis) -> String {
    let mut name = format!("{}.outer", program.axis_name(axis));
    while program.axes.contains(&name) {
        name.push('_');
    }
    name
}

struct Splitter {
    changed: Program,
    /// The inner axis.
    inner: Axis,
}

impl Splitter {
    /// Adds a node whose operands are in their new places.
    fn node(&mut self, node: Node) -> Option<Value> {
        let mut op = node.op;
        op.map_axes(moved);
        let axes = self.axes(node.axes);
        match op {
            Op::Index(axis) if axis == self.inner => {
                let (outer, size, inner) =
                    (self.typed(Op::Index(OUTER))?, self.typed(Op::Size(axis))?, self.typed(Op::Index(axis))?);
                let first = self.typed(Op::Binary(Binary::Mul, outer, size))?;
                self.typed(Op::Binary(Binary::Add, first, inner))
            }
            Op::Size(axis) if axis == self.inner => {
                let (outer, inner) = (self.typed(Op::Size(OUTER))?, self.typed(Op::Size(axis))?);
                self.typed(Op::Binary(Binary::Mul, outer, inner))
            }
            Op::Reduce { axis, operator, elements } if axis == self.inner => {
                let inner = self.typed(Op::Reduce { axis, operator, elements })?;
                let fields = 0..self.changed.operator(operator).fields.len() as u32;
                let elements = fields.map(|k| self.typed(Op::Field(inner, k))).collect::<Option<_>>()?;
                self.typed(Op::Reduce { axis: OUTER, operator, elements })
            }
            op if self.goes_along(&op) => None,
            op => Some(push(&mut self.changed, Node { op, ty: node.ty, axes })),
        }
    }

    /// Whether an operation goes along the axis in order, or names positions on it.
    fn goes_along(&self, op: &Op) -> bool {
        let found = std::cell::Cell::new(false);
        op.clone().map_axes(|axis| {
            found.set(found.get() || axis == self.inner);
            axis
        });
        found.get()
    }

    /// A set of axes in the changed program: one that had the axis has the outer one, too.
    fn axes(&self, axes: AxisSet) -> AxisSet {
        let moved = AxisSet(axes.0 << 1);
        if moved.contains(self.inner) { moved.with(OUTER) } else { moved }
    }

    /// Adds an operation whose type and axes follow from its operands.
    fn typed(&mut self, op: Op) -> Option<Value> {
        let scope = Scope { program: &self.changed, nodes: &self.changed.nodes, fields: None };
        let (ty, axes) = scope.infer(&op, Ty::I64, AxisSet::EMPTY).ok()?;
        Some(push(&mut self.changed, Node { op, ty, axes }))
    }
}

#[cfg(test)]
mod tests {
    use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
    use oplus_dsl::testing::inputs;
    use oplus_dsl::testing::{Ingredients, program};

    use super::*;

    /// A tensor with an axis split, the outer one before all other axes.
    fn in_two(array: &Array, place: usize, outer: usize) -> Array {
        let inner = array.sizes[place] / outer;
        let mut sizes = array.sizes.clone();
        sizes[place] = inner;
        sizes.insert(0, outer);
        let inside: usize = array.sizes[place + 1..].iter().product();
        let len = array.data.len() / outer;
        let from = |i: usize| {
            let (outer, rest) = (i / len, i % len);
            let (before, within) = (rest / (inner * inside), rest % (inner * inside));
            before * array.sizes[place] * inside + outer * inner * inside + within
        };
        let all = 0..array.data.len();
        let data = match &array.data {
            Data::Float(x) => Data::Float(all.map(|i| x[from(i)]).collect()),
            Data::Int(x) => Data::Int(all.map(|i| x[from(i)]).collect()),
            Data::Bool(x) => Data::Bool(all.map(|i| x[from(i)]).collect()),
        };
        Array { sizes, data }
    }

    fn is_near(a: &Array, b: &Array) -> bool {
        let near = |i: usize| {
            let (x, y) = (a.data.get(i).as_f64(), b.data.get(i).as_f64());
            x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-9 * (1.0 + x.abs())
        };
        a.sizes == b.sizes && (0..a.data.len()).all(near)
    }

    /// Compares a program with itself after an axis is split; gives whether it can be.
    fn check(program: &Program, axis: Axis, outer: usize, seed: u64) -> bool {
        let Some(changed) = split(program, axis) else { return false };
        let size = |own: u32| if Axis(own) == axis { 2 * outer } else { 3 };
        let sizes: Vec<usize> = (0..program.axes.len() as u32).map(size).collect();
        let given = inputs(program, &sizes, seed);
        let named = |sizes: &[usize]| (0..).map(Axis).zip(sizes.iter().copied()).collect::<Vec<_>>();
        let wanted = interpret_sized(program, &given, &named(&sizes), Mode::default()).expect("runs");
        let place = |axes: &[Axis]| axes.iter().position(|own| *own == axis);
        let both = |array: &Array, axes: &[Axis]| {
            place(axes).map_or_else(|| array.clone(), |place| in_two(array, place, outer))
        };
        let params = program.params.iter().zip(&given);
        let given: Vec<_> = params.map(|(param, array)| array.as_ref().map(|array| both(array, &param.axes))).collect();
        let mut sizes_in_two = sizes.clone();
        sizes_in_two[axis.0 as usize] = 2;
        sizes_in_two.insert(0, outer);
        let found = interpret_sized(&changed, &given, &named(&sizes_in_two), Mode::default()).expect("runs");
        for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
            assert!(is_near(&both(wanted, &output.axes), found), "`{}`, {axis:?}\n{program}\n{changed}", output.name);
        }
        true
    }

    #[test]
    fn random_programs_mean_what_they_meant() {
        let mut done = 0;
        for seed in 0..200 {
            let program = program(seed, &Ingredients::default()).instantiate(oplus_dsl::Elem::F64);
            for axis in (0..program.axes.len() as u32).map(Axis) {
                done += usize::from(check(&program, axis, 2 + seed as usize % 2, seed));
            }
        }
        assert!(done > 50, "{done}");
    }

    #[test]
    fn outer_axes_are_the_smallest_that_divide() {
        let split = |size, most| Split::of(Axis(0), size, most).map(|split| split.outer);
        assert_eq!(split(256, 128), Some(2));
        assert_eq!(split(192, 128), Some(2));
        assert_eq!(split(384, 128), Some(3));
        assert_eq!(split(129, 128), Some(3));
        assert_eq!(split(128, 128), None);
        assert_eq!(split(131, 128), None);
        assert_eq!(split(0, 128), None);
        assert_eq!(split(64 * 128, 128), Some(64));
        assert_eq!(split(65 * 128, 128), None);
        assert_eq!(split(i64::MAX, 128), None);
    }
}
