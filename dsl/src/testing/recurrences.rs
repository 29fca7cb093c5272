//! Random recurrences that are read out: states over an axis that is summed away.

use crate::build::Builder;
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Binary, Op, Program, Unary, Value};
use crate::rng::Rng;
use crate::testing::operators;

/// A random valid program over B, D, N and T: y = Σ over N of maps of h, where h\[t\] = decay·h[t−1] + input in some
/// direction, with some initial state, and perhaps the last state. No parameter has D, N and T, so gradients are sums.
pub fn recurrence(seed: u64, elem: Elem) -> Program {
    let mut builder = Builder::new("recurrence");
    let axes = ["B", "D", "N", "T"].map(|name| builder.axis(name).expect(VALID));
    let mut random = Recurrence { builder, rng: Rng::new(seed), axes, elem };
    let [_, _, state, time] = axes;
    let states = random.scan();
    let element = random.product(states);
    let sum = random.builder.operator(operators::sum(elem.value()));
    let row = random.builder.reduce(state, sum, &[element]).expect(VALID)[0];
    let row = if random.rng.once_in(2) { random.product(row) } else { row };
    random.output("y", row);
    if random.rng.once_in(2) {
        let zero = random.builder.float(elem.value(), 0.0).expect(VALID);
        let last = random.builder.last(time, states, zero).expect(VALID);
        random.output("h_last", last);
    }
    random.builder.finish()
}

const VALID: &str = "the program stays valid";

struct Recurrence {
    builder: Builder,
    rng: Rng,
    axes: [Axis; 4],
    elem: Elem,
}

impl Recurrence {
    fn scan(&mut self) -> Value {
        let ty = self.elem.value();
        let [b, d, n, t] = self.axes;
        let decay = self.decay();
        let (rows, columns) = (self.param_over(&[b, d, t]), self.param_over(&[b, n, t]));
        let input = self.builder.binary(Binary::Mul, rows, columns).expect(VALID);
        let operator = self.builder.operator(operators::affine(ty));
        let init = if self.rng.once_in(2) {
            let one = self.builder.float(ty, 1.0).expect(VALID);
            vec![one, self.param_over(&[b, d, n])]
        } else {
            vec![]
        };
        let (reverse, exclusive) = (self.rng.once_in(3), self.rng.once_in(4));
        let op = Op::Scan { axis: t, operator, elements: vec![decay, input], init, reverse, exclusive };
        let tuple = self.builder.append(op, Ty::Tuple, AxisSet::EMPTY).expect(VALID);
        self.builder.field(tuple, 1).expect(VALID)
    }

    /// A number in (−1, 1), or in (0, 1); perhaps 0 where it is small.
    fn decay(&mut self) -> Value {
        let raw = self.param(self.axes.iter().copied().collect());
        let raw = if self.rng.once_in(2) { self.product(raw) } else { raw };
        let function = self.rng.pick(&[Unary::Sigmoid, Unary::Tanh]);
        let decay = self.builder.unary(function, raw).expect(VALID);
        if self.rng.once_in(2) {
            return decay;
        }
        let [least, zero] = [0.4, 0.0].map(|x| self.builder.float(self.elem.value(), x).expect(VALID));
        let small = self.builder.binary(Binary::Lt, decay, least).expect(VALID);
        self.builder.select(small, zero, decay).expect(VALID)
    }

    /// A value times a parameter over some of its axes.
    fn product(&mut self, value: Value) -> Value {
        let own = self.builder.axes_of(value).expect(VALID);
        let factor = self.param(own);
        self.builder.binary(Binary::Mul, value, factor).expect(VALID)
    }

    /// A parameter over some of these axes: its gradient is a sum over D, N or T.
    fn param(&mut self, among: AxisSet) -> Value {
        let summed = 1 + self.rng.below(3);
        let batch = self.rng.once_in(2);
        let kept = |i: &usize| *i != summed && (*i > 0 || batch) && among.contains(self.axes[*i]);
        let axes: Vec<Axis> = (0..self.axes.len()).filter(kept).map(|i| self.axes[i]).collect();
        self.param_over(&axes)
    }

    fn param_over(&mut self, axes: &[Axis]) -> Value {
        let name = format!("p{}", self.builder.program().params.len());
        self.builder.param(&name, axes, self.elem, None).expect(VALID)
    }

    fn output(&mut self, name: &str, value: Value) {
        let axes: Vec<Axis> = self.builder.axes_of(value).expect(VALID).iter().collect();
        self.builder.output(name, &axes, self.elem, value).expect(VALID);
    }
}
