//! Recurrences of matrices, state by state and vector by vector.

use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, Binary, MatrixScan, Node, Term, Value};
use crate::scalar;

use super::Data;
use super::nodes::Interpreter;

/// An operand, read at one index of the other axes, a time, and one or two indices of the matrix.
struct View<'a> {
    data: &'a [f64],
    lanes: Vec<usize>,
    time: usize,
    along: usize,
    other: usize,
}

/// An operand at one index of the other axes.
#[derive(Clone, Copy)]
struct Lane<'a> {
    view: &'a View<'a>,
    base: usize,
}

impl Lane<'_> {
    fn at(&self, t: usize, k: usize, j: usize) -> f64 {
        let View { data, time, along, other, .. } = self.view;
        data[self.base + t * time + k * along + j * other]
    }
}

impl View<'_> {
    fn lane(&self, index: &[usize]) -> Lane<'_> {
        Lane { view: self, base: index.iter().zip(&self.lanes).map(|(i, stride)| i * stride).sum() }
    }
}

/// Where states are forgotten.
struct Flags<'a> {
    data: &'a [bool],
    lanes: Vec<usize>,
    time: usize,
}

impl Flags<'_> {
    fn at(&self, index: &[usize], t: usize) -> bool {
        let base: usize = index.iter().zip(&self.lanes).map(|(i, stride)| i * stride).sum();
        self.data[base + t * self.time]
    }
}

/// The sizes of a recurrence, and the type that is computed in.
struct Extent {
    times: usize,
    length: usize,
    ty: Ty,
}

/// The values that each step of a lane multiplies and adds.
struct Operands<'a> {
    decay: Lane<'a>,
    /// The values of each term.
    terms: &'a [Vec<Lane<'a>>],
    input: Lane<'a>,
}

impl Interpreter<'_> {
    /// All states.
    pub(super) fn matrix_scan(&self, scan: &MatrixScan, node: &Node, n: usize) -> Data {
        let mut states = vec![0.0; n];
        let extent = Extent {
            times: self.shapes.size(scan.axis),
            length: self.shapes.size(scan.along),
            ty: self.mode.precision.ty(node.ty),
        };
        let lanes = node.axes.without(scan.axis).without(scan.along);
        let others = scan.terms.iter().map(|term| match term {
            Term::Dense { other, .. } => Some(*other),
            Term::Pair { .. } => None,
        });
        let view = |value: Value, other: Option<Axis>| self.view(scan, lanes, value, other);
        let (decay, input, init) = (view(scan.decay, None), view(scan.input, None), view(scan.init, None));
        let resets = scan.reset.map(|reset| self.flags(scan, lanes, reset));
        let terms: Vec<Vec<View<'_>>> = scan
            .terms
            .iter()
            .zip(others)
            .map(|(term, other)| term.values().map(|v| view(v, other)).collect())
            .collect();
        let own: Vec<Axis> = node.axes.iter().collect();
        let strides = self.shapes.strides(&own, lanes.iter());
        let (time, along) = (self.shapes.stride(&own, scan.axis), self.shapes.stride(&own, scan.along));
        let sizes = self.shapes.sizes(lanes.iter());
        let count = if n == 0 { 0 } else { sizes.iter().product() };
        for lane in 0..count {
            let index = super::scans::digits(lane, &sizes);
            let base: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
            let (decay, input, init) = (decay.lane(&index), input.lane(&index), init.lane(&index));
            let terms: Vec<Vec<Lane<'_>>> =
                terms.iter().map(|term| term.iter().map(|v| v.lane(&index)).collect()).collect();
            let mut state: Vec<f64> = (0..extent.length).map(|k| init.at(0, k, 0)).collect();
            for visit in 0..extent.times {
                let t = if scan.reverse { extent.times - 1 - visit } else { visit };
                let before = state.clone();
                if resets.as_ref().is_some_and(|resets| resets.at(&index, t)) {
                    state.fill(0.0);
                }
                let next = step(scan, &extent, &state, t, Operands { decay, terms: &terms, input });
                let given = if scan.exclusive { &before } else { &next };
                given.iter().enumerate().for_each(|(k, x)| states[base + t * time + k * along] = *x);
                state = next;
            }
        }
        Data::Float(states)
    }

    fn flags(&self, scan: &MatrixScan, lanes: AxisSet, value: Value) -> Flags<'_> {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let Data::Bool(data) = self.data(value) else { unreachable!("`reset` of `matrix_scan` is a bool") };
        Flags { data, lanes: self.shapes.strides(&own, lanes.iter()), time: self.shapes.stride(&own, scan.axis) }
    }

    fn view(&self, scan: &MatrixScan, lanes: AxisSet, value: Value, other: Option<Axis>) -> View<'_> {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let Data::Float(data) = self.data(value) else { unreachable!("operands of `matrix_scan` are floats") };
        let stride = |axis: Axis| self.shapes.stride(&own, axis);
        View {
            data,
            lanes: self.shapes.strides(&own, lanes.iter()),
            time: stride(scan.axis),
            along: stride(scan.along),
            other: other.map_or(0, stride),
        }
    }
}

/// The state after step t.
fn step(
    scan: &MatrixScan,
    extent: &Extent,
    state: &[f64],
    t: usize,
    Operands { decay, terms, input }: Operands<'_>,
) -> Vec<f64> {
    let of_two = |op: Binary, l: f64, r: f64| scalar::round_to(extent.ty, scalar::float_binary(op, l, r));
    let times = |l: f64, r: f64| of_two(Binary::Mul, l, r);
    let plus = |l: f64, r: f64| of_two(Binary::Add, l, r);
    let mut next: Vec<f64> = state.iter().enumerate().map(|(k, s)| times(decay.at(t, k, 0), *s)).collect();
    let sum = |at: &dyn Fn(usize) -> f64| state.iter().enumerate().fold(0.0, |sum, (j, s)| plus(sum, times(*s, at(j))));
    for (term, values) in scan.terms.iter().zip(terms) {
        let added: Vec<f64> = match term {
            Term::Pair { .. } => {
                let read = sum(&|j| values[0].at(t, j, 0));
                (0..extent.length).map(|k| times(read, values[1].at(t, k, 0))).collect()
            }
            Term::Dense { transposed: false, .. } => {
                (0..extent.length).map(|k| sum(&|j| values[0].at(t, k, j))).collect()
            }
            Term::Dense { transposed: true, .. } => {
                (0..extent.length).map(|k| sum(&|j| values[0].at(t, j, k))).collect()
            }
        };
        next.iter_mut().zip(added).for_each(|(s, x)| *s = plus(*s, x));
    }
    next.iter_mut().enumerate().for_each(|(k, s)| *s = plus(*s, input.at(t, k, 0)));
    next
}
