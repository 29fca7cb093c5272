//! Scans and reductions, lane by lane: a lane is one index of all axes but the scanned one.

use crate::ir::{Axis, AxisSet, Literal, Node, Op, Value};
use crate::typing::Scope;

use super::columns::{column, set_column};
use super::combine::Combiner;
use super::nodes::Interpreter;
use super::{Data, InterpretError, Order};

/// Lanes that run side by side, an operation after the other over all of them.
const SIDE_BY_SIDE: usize = 256;

/// Fewer lanes than these run one after the other.
const FEWEST: usize = 8;

/// Where the elements of an array lie, seen from the lanes.
struct Layout {
    /// How far apart neighbours lie along each axis of the lanes.
    lanes: Vec<usize>,
    /// How far apart neighbours lie along the scanned axis.
    along: usize,
}

impl Layout {
    /// The first element of a lane.
    fn base(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.lanes).map(|(i, stride)| i * stride).sum()
    }
}

/// A scan or a reduction, ready to run.
struct Combination<'a> {
    axis: Axis,
    lanes: AxisSet,
    elements: Vec<(&'a Data, Layout)>,
    init: Vec<(&'a Data, Layout)>,
    fields: Vec<(Data, Layout)>,
    reverse: bool,
    exclusive: bool,
    order: Order,
}

impl Interpreter<'_> {
    /// Every field of a scan or a reduction.
    pub(super) fn combination(&self, node: &Node) -> Result<Vec<Data>, InterpretError> {
        let (axis, id, elements, init, flags): (_, _, _, &[Value], _) = match &node.op {
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => {
                (*axis, *operator, elements, init, (*reverse, *exclusive))
            }
            Op::Reduce { axis, operator, elements } => (*axis, *operator, elements, &[], (false, false)),
            _ => return Ok(vec![]),
        };
        let (reverse, exclusive) = flags;
        let lanes = node.axes.without(axis);
        let view = |v: &Value| (self.data(*v), self.layout(self.program.node(*v).axes, lanes, axis));
        let mut combination = Combination {
            axis,
            lanes,
            elements: elements.iter().map(view).collect(),
            init: init.iter().map(view).collect(),
            fields: self.empty_fields(node, lanes, axis)?,
            reverse,
            exclusive,
            order: self.mode.order,
        };
        let mut combiner = Combiner::new(self.program.operator(id), self.mode.precision);
        self.run_lanes(&mut combination, &mut combiner, matches!(node.op, Op::Scan { .. }));
        Ok(combination.fields.into_iter().map(|(data, _)| data).collect())
    }

    fn layout(&self, own: AxisSet, lanes: AxisSet, axis: Axis) -> Layout {
        let own: Vec<Axis> = own.iter().collect();
        Layout { lanes: self.shapes.strides(&own, lanes.iter()), along: self.shapes.stride(&own, axis) }
    }

    fn empty_fields(&self, node: &Node, lanes: AxisSet, axis: Axis) -> Result<Vec<(Data, Layout)>, InterpretError> {
        let scope = Scope { program: self.program, nodes: &self.program.nodes, fields: None };
        let fields = scope.fields_of(&node.op).unwrap_or_default();
        let empty = |(ty, axes)| {
            let n = self.shapes.count(axes, || "a state".to_owned())?;
            Ok((Data::filled(Literal::zero(ty), n), self.layout(axes, lanes, axis)))
        };
        fields.into_iter().map(empty).collect()
    }

    fn run_lanes(&self, combination: &mut Combination<'_>, combiner: &mut Combiner<'_>, is_scan: bool) {
        let size = self.shapes.size(combination.axis);
        if is_scan && size == 0 {
            return;
        }
        // A field that lacks an empty axis has states nonetheless: such an axis counts as one lane.
        let sizes: Vec<usize> = self.shapes.sizes(combination.lanes.iter()).into_iter().map(|n| n.max(1)).collect();
        let lanes: usize = sizes.iter().product();
        if combination.order == Order::Sequential && lanes >= FEWEST {
            let groups = (0..lanes).step_by(SIDE_BY_SIDE);
            groups.for_each(|first| {
                let indices = first..(first + SIDE_BY_SIDE).min(lanes);
                combination.run_columns(indices.map(|lane| digits(lane, &sizes)).collect(), size, combiner, is_scan);
            });
            return;
        }
        let mut states = Vec::with_capacity(size * combination.elements.len());
        for lane in 0..lanes {
            let index = digits(lane, &sizes);
            combination.load(&index, size, &mut states);
            let init = combination.initial(&index, combiner);
            if is_scan {
                combiner.prefixes(&init, &mut states, combination.order);
                combination.store_states(&index, size, &init, &states);
            } else {
                let total = combiner.fold(&init, &states, combination.order);
                combination.store(&index, 0, &total);
            }
        }
    }
}

impl Combination<'_> {
    /// Runs lanes side by side, each from the first element visited to the last.
    fn run_columns(&mut self, lanes: Vec<Vec<usize>>, size: usize, combiner: &Combiner<'_>, is_scan: bool) {
        let places = |layout: &Layout| lanes.iter().map(|index| layout.base(index)).collect::<Vec<_>>();
        let elements: Vec<_> = self.elements.iter().map(|(data, own)| (*data, places(own), own.along)).collect();
        let fields: Vec<_> = self.fields.iter().map(|(_, own)| (places(own), own.along)).collect();
        let mut states: Vec<Data> = if self.init.is_empty() {
            combiner.identity().into_iter().map(|literal| Data::filled(literal, lanes.len())).collect()
        } else {
            self.init.iter().map(|(data, layout)| column(data, &places(layout), 0)).collect()
        };
        for visit in 0..size {
            let t = self.position(visit, size);
            let element: Vec<Data> =
                elements.iter().map(|(data, places, along)| column(data, places, t * along)).collect();
            if is_scan && self.exclusive {
                self.store_columns(&fields, t, &states);
            }
            combiner.extend_all(&mut states, &element);
            if is_scan && !self.exclusive {
                self.store_columns(&fields, t, &states);
            }
        }
        if !is_scan {
            self.store_columns(&fields, 0, &states);
        }
    }

    fn store_columns(&mut self, fields: &[(Vec<usize>, usize)], t: usize, states: &[Data]) {
        for (((data, _), (places, along)), state) in self.fields.iter_mut().zip(fields).zip(states) {
            set_column(data, places, t * along, state);
        }
    }

    /// The elements of a lane in the order in which they are visited.
    fn load(&self, index: &[usize], size: usize, states: &mut Vec<Literal>) {
        let bases: Vec<usize> = self.elements.iter().map(|(_, layout)| layout.base(index)).collect();
        states.clear();
        for visit in 0..size {
            let t = self.position(visit, size);
            let elements = self.elements.iter().zip(&bases);
            states.extend(elements.map(|((data, layout), base)| get(data, base + t * layout.along)));
        }
    }

    fn initial(&self, index: &[usize], combiner: &Combiner<'_>) -> Vec<Literal> {
        if self.init.is_empty() {
            return combiner.identity();
        }
        self.init.iter().map(|(data, layout)| get(data, layout.base(index))).collect()
    }

    fn store_states(&mut self, index: &[usize], size: usize, init: &[Literal], states: &[Literal]) {
        let n = init.len();
        for visit in 0..size {
            let state = match (self.exclusive, visit) {
                (false, _) => &states[visit * n..][..n],
                (true, 0) => init,
                (true, _) => &states[(visit - 1) * n..][..n],
            };
            self.store(index, self.position(visit, size), state);
        }
    }

    fn store(&mut self, index: &[usize], t: usize, state: &[Literal]) {
        for ((data, layout), literal) in self.fields.iter_mut().zip(state) {
            if !data.is_empty() {
                data.set(layout.base(index) + t * layout.along, *literal);
            }
        }
    }

    fn position(&self, visit: usize, size: usize) -> usize {
        if self.reverse { size - 1 - visit } else { visit }
    }
}

/// An element; anything of an array without elements.
fn get(data: &Data, i: usize) -> Literal {
    match data {
        _ if !data.is_empty() => data.get(i),
        Data::Float(_) => Literal::Float(0.0),
        Data::Int(_) => Literal::Int(0),
        Data::Bool(_) => Literal::Bool(false),
    }
}

/// The index along each axis of a number that counts all indices, the last axis fastest.
pub(super) fn digits(mut number: usize, sizes: &[usize]) -> Vec<usize> {
    let mut digits = vec![0; sizes.len()];
    for (digit, size) in digits.iter_mut().zip(sizes).rev() {
        *digit = number % size;
        number /= size;
    }
    digits
}
