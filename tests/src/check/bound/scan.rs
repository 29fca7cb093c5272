//! Scans and reductions with errors, as balanced trees.

use oplus_dsl::ir::{Axis, Node, Op, Operator, Value};

use super::evaluate::{Cell, Cells, Evaluation};

/// A state: one cell per field.
type State = Vec<Cell>;

/// A scan or a reduction.
struct Combination<'a> {
    axis: Axis,
    operator: &'a Operator,
    elements: &'a [Value],
    init: &'a [Value],
    reverse: bool,
    exclusive: bool,
    is_scan: bool,
}

impl Evaluation<'_> {
    /// The fields of a scan or a reduction, over all axes of the tuple.
    pub(super) fn combination(&self, node: &Node) -> Vec<Cells> {
        let c = match &node.op {
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => Combination {
                axis: *axis,
                operator: self.program.operator(*operator),
                elements,
                init,
                reverse: *reverse,
                exclusive: *exclusive,
                is_scan: true,
            },
            Op::Reduce { axis, operator, elements } => Combination {
                axis: *axis,
                operator: self.program.operator(*operator),
                elements,
                init: &[],
                reverse: false,
                exclusive: false,
                is_scan: false,
            },
            _ => return vec![],
        };
        let own: Vec<Axis> = node.axes.iter().collect();
        let lanes: Vec<Axis> = node.axes.without(c.axis).iter().collect();
        let count = own.iter().map(|a| self.size(*a).max(1)).product();
        let mut fields = vec![vec![Cell::of(oplus_dsl::ir::Literal::Int(0)); count]; c.elements.len()];
        let (places, along) = (self.lanes(&lanes, &own), self.stride(&own, c.axis));
        let inputs: Vec<Lane<'_>> = c.elements.iter().map(|v| self.lane(*v, &lanes, c.axis)).collect();
        let starts: Vec<Lane<'_>> = c.init.iter().map(|v| self.lane(*v, &lanes, c.axis)).collect();
        for (lane, place) in places.into_iter().enumerate() {
            let states = c.run(&inputs, &starts, lane, self.size(c.axis));
            for (t, state) in states.into_iter().enumerate() {
                fields.iter_mut().zip(state).for_each(|(field, cell)| field[place + t * along] = cell);
            }
        }
        fields
    }

    fn lane(&self, value: Value, lanes: &[Axis], axis: Axis) -> Lane<'_> {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let cells = &self.values[value.0 as usize][0];
        Lane { cells, places: self.lanes(lanes, &own), along: self.stride(&own, axis) }
    }

    /// For every lane, its place in a dense array over `own`; an empty axis counts as one lane.
    fn lanes(&self, lanes: &[Axis], own: &[Axis]) -> Vec<usize> {
        let filled: Vec<Axis> = lanes.iter().copied().filter(|a| self.size(*a) > 0).collect();
        self.positions(&filled, own)
    }
}

/// Where the elements of a value lie, seen from the lanes.
struct Lane<'a> {
    cells: &'a Cells,
    places: Vec<usize>,
    along: usize,
}

impl Lane<'_> {
    fn get(&self, lane: usize, t: usize) -> Cell {
        let nothing = Cell::of(oplus_dsl::ir::Literal::Float(0.0));
        self.cells.get(self.places[lane] + t * self.along).copied().unwrap_or(nothing)
    }
}

impl Combination<'_> {
    /// The states that a lane stores along the axis, or its one result.
    fn run(&self, inputs: &[Lane<'_>], starts: &[Lane<'_>], lane: usize, size: usize) -> Vec<State> {
        let position = |visit: usize| if self.reverse { size - 1 - visit } else { visit };
        let element = |visit: usize| inputs.iter().map(|input| input.get(lane, position(visit))).collect::<State>();
        let elements: Vec<State> = (0..size).map(element).collect();
        let identity = || self.operator.identity.iter().map(|literal| Cell::of(*literal)).collect();
        let init: State =
            if starts.is_empty() { identity() } else { starts.iter().map(|start| start.get(lane, 0)).collect() };
        if !self.is_scan {
            let total = self.total(&elements);
            return vec![total.unwrap_or(init)];
        }
        let mut states: Vec<State> =
            if starts.is_empty() { self.prefixes(elements) } else { self.after(&init, self.prefixes(elements)) };
        if self.exclusive && size > 0 {
            states.rotate_right(1);
            states[0] = init;
        }
        if self.reverse {
            states.reverse();
        }
        states
    }

    fn total(&self, elements: &[State]) -> Option<State> {
        match elements {
            [] => None,
            [one] => Some(one.clone()),
            many => {
                let (left, right) = many.split_at(many.len() / 2);
                Some(self.combine(&self.total(left)?, &self.total(right)?))
            }
        }
    }

    fn prefixes(&self, mut elements: Vec<State>) -> Vec<State> {
        if elements.len() < 2 {
            return elements;
        }
        let right = elements.split_off(elements.len() / 2);
        let mut states = self.prefixes(elements);
        let rest = self.prefixes(right);
        let carried = states.last().map(|total| self.after(total, rest));
        states.extend(carried.into_iter().flatten());
        states
    }

    fn after(&self, carry: &State, states: Vec<State>) -> Vec<State> {
        states.iter().map(|state| self.combine(carry, state)).collect()
    }

    fn combine(&self, l: &State, r: &State) -> State {
        let mut body: Vec<Cell> = Vec::with_capacity(self.operator.body.len());
        for node in &self.operator.body {
            let at = |v: &Value| body[v.0 as usize];
            let cell = match &node.op {
                Op::Input(k) => {
                    let (k, n) = (*k as usize, l.len());
                    if k < n { l[k] } else { r[k - n] }
                }
                Op::Const(literal) => Cell::of(*literal),
                Op::Unary(op, x) => at(x).unary(*op, node.ty),
                Op::Binary(op, x, y) => at(x).binary(*op, self.operator.body[x.0 as usize].ty, at(y)),
                Op::Select(c, x, y) => at(c).select(at(x), at(y)),
                Op::Convert(elem, x) => at(x).convert(self.operator.body[x.0 as usize].ty, *elem),
                Op::Broadcast(x) => at(x),
                _ => Cell::of(oplus_dsl::ir::Literal::Bool(false)),
            };
            body.push(cell);
        }
        self.operator.combine.iter().map(|v| body[v.0 as usize]).collect()
    }
}
