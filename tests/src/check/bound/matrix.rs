//! Recurrences of matrices with errors, state by state.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Literal, MatrixScan, Node, Term, Value};

use super::evaluate::{Cell, Cells, Evaluation};

/// An operand at one index of the other axes, read at a time and at two indices of the matrix.
struct Lane<'a> {
    cells: &'a Cells,
    base: usize,
    time: usize,
    along: usize,
    other: usize,
}

impl Lane<'_> {
    fn at(&self, t: usize, k: usize, j: usize) -> Cell {
        self.cells[self.base + t * self.time + k * self.along + j * self.other]
    }
}

fn zero() -> Cell {
    Cell::of(Literal::Float(0.0))
}

impl Evaluation<'_> {
    /// All states.
    pub(super) fn matrix_scan(&self, scan: &MatrixScan, node: &Node) -> Cells {
        let own: Vec<Axis> = node.axes.iter().collect();
        let lanes: Vec<Axis> = node.axes.without(scan.axis).without(scan.along).iter().collect();
        let mut states = vec![zero(); own.iter().map(|axis| self.size(*axis)).product()];
        if states.is_empty() {
            return states;
        }
        let (time, along) = (self.stride(&own, scan.axis), self.stride(&own, scan.along));
        for (lane, base) in self.positions(&lanes, &own).into_iter().enumerate() {
            let view = |value: Value, other: Option<Axis>| self.at_lane(scan, (value, other), &lanes, lane);
            let init = view(scan.init, None);
            let mut state: Vec<Cell> = (0..self.size(scan.along)).map(|k| init.at(0, k, 0)).collect();
            for visit in 0..self.size(scan.axis) {
                let t = if scan.reverse { self.size(scan.axis) - 1 - visit } else { visit };
                let before = state.clone();
                if scan.reset.is_some_and(|reset| view(reset, None).at(t, 0, 0) == Cell::of(Literal::Bool(true))) {
                    state.fill(zero());
                }
                state = step(scan, node.ty, &state, t, &view).into_iter().map(Cell::settled).collect();
                let given = if scan.exclusive { &before } else { &state };
                given.iter().enumerate().for_each(|(k, cell)| states[base + t * time + k * along] = *cell);
            }
        }
        states
    }

    fn at_lane(
        &self,
        scan: &MatrixScan,
        (value, other): (Value, Option<Axis>),
        lanes: &[Axis],
        lane: usize,
    ) -> Lane<'_> {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let stride = |axis: Axis| self.stride(&own, axis);
        Lane {
            cells: &self.values[value.0 as usize][0],
            base: self.positions(lanes, &own)[lane],
            time: stride(scan.axis),
            along: stride(scan.along),
            other: other.map_or(0, stride),
        }
    }
}

/// The state after step t.
fn step<'a>(
    scan: &MatrixScan,
    ty: Ty,
    state: &[Cell],
    t: usize,
    view: &dyn Fn(Value, Option<Axis>) -> Lane<'a>,
) -> Vec<Cell> {
    let times = |l: Cell, r: Cell| l.binary(Binary::Mul, ty, r);
    let plus = |l: Cell, r: Cell| l.binary(Binary::Add, ty, r);
    let sum =
        |at: &dyn Fn(usize) -> Cell| state.iter().enumerate().fold(zero(), |sum, (j, s)| plus(sum, times(*s, at(j))));
    let (decay, input) = (view(scan.decay, None), view(scan.input, None));
    let mut next: Vec<Cell> = state.iter().enumerate().map(|(k, s)| times(decay.at(t, k, 0), *s)).collect();
    for term in &scan.terms {
        let added: Vec<Cell> = match *term {
            Term::Pair { column, row } => {
                let (column, row) = (view(column, None), view(row, None));
                let read = sum(&|j| column.at(t, j, 0));
                (0..state.len()).map(|k| times(read, row.at(t, k, 0))).collect()
            }
            Term::Dense { matrix, other, transposed } => {
                let matrix = view(matrix, Some(other));
                let at = |j: usize, k: usize| if transposed { matrix.at(t, j, k) } else { matrix.at(t, k, j) };
                (0..state.len()).map(|k| sum(&|j| at(j, k))).collect()
            }
        };
        next.iter_mut().zip(added).for_each(|(s, x)| *s = plus(*s, x));
    }
    next.iter().enumerate().map(|(k, s)| plus(*s, input.at(t, k, 0))).collect()
}
