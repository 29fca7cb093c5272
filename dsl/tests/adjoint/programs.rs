//! Programs of the tests, written with the builder.

use oplus_dsl::build::{Builder, Direction};
use oplus_dsl::ir::{Axis, AxisSet, Binary, Operator, Program, Unary, Value};

use oplus_dsl::segmented::segmented;
use oplus_dsl::testing::operators;
use oplus_dsl::{Elem, Ty};

/// A program under construction; every method panics where the builder gives an error.
pub(crate) struct Draft(pub(crate) Builder);

impl Draft {
    pub(crate) fn new(name: &str) -> Draft {
        Draft(Builder::new(name))
    }
    pub(crate) fn axis(&mut self, name: &str) -> Axis {
        self.0.axis(name).unwrap()
    }
    pub(crate) fn param(&mut self, name: &str, axes: &str) -> Value {
        let axes = self.axes(axes);
        self.0.param(name, &axes, Elem::F64, None).unwrap()
    }
    pub(crate) fn output(&mut self, name: &str, axes: &str, value: Value) {
        let axes = self.axes(axes);
        let elem = self.0.ty(value).unwrap().elem().unwrap();
        self.0.output(name, &axes, elem, value).unwrap();
    }
    fn axes(&mut self, names: &str) -> Vec<Axis> {
        names.split_whitespace().map(|name| self.axis(name)).collect()
    }
    pub(crate) fn unary(&mut self, op: Unary, a: Value) -> Value {
        self.0.unary(op, a).unwrap()
    }
    pub(crate) fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        self.0.binary(op, a, b).unwrap()
    }
    pub(crate) fn mul(&mut self, a: Value, b: Value) -> Value {
        self.binary(Binary::Mul, a, b)
    }
    pub(crate) fn add(&mut self, a: Value, b: Value) -> Value {
        self.binary(Binary::Add, a, b)
    }
    pub(crate) fn float(&mut self, x: f64) -> Value {
        self.0.float(Ty::F64, x).unwrap()
    }
    pub(crate) fn scan(
        &mut self,
        axis: &str,
        op: Operator,
        elements: &[Value],
        init: &[Value],
        how: Direction,
    ) -> Vec<Value> {
        let (axis, op) = (self.axis(axis), self.0.operator(op));
        self.0.scan(axis, op, elements, init, how).unwrap()
    }
    pub(crate) fn reduce(&mut self, axis: &str, op: Operator, elements: &[Value]) -> Vec<Value> {
        let (axis, op) = (self.axis(axis), self.0.operator(op));
        self.0.reduce(axis, op, elements).unwrap()
    }
    pub(crate) fn sum(&mut self, axis: &str, value: Value) -> Value {
        self.reduce(axis, operators::sum(Ty::F64), &[value])[0]
    }
    pub(crate) fn last(&mut self, axis: &str, value: Value, empty: Value) -> Value {
        let axis = self.axis(axis);
        self.0.last(axis, value, empty).unwrap()
    }
    pub(crate) fn first(&mut self, axis: &str, value: Value, empty: Value) -> Value {
        let axis = self.axis(axis);
        self.0.first(axis, value, empty).unwrap()
    }
    pub(crate) fn shift(&mut self, axis: &str, by: i64, value: Value, fill: Value) -> Value {
        let axis = self.axis(axis);
        self.0.shift(axis, by, value, fill).unwrap()
    }
    pub(crate) fn broadcast(&mut self, value: Value, axes: &str) -> Value {
        let axes: AxisSet = self.axes(axes).into_iter().collect();
        self.0.broadcast(value, axes).unwrap()
    }
    pub(crate) fn finish(self) -> Program {
        self.0.finish()
    }
}

pub(crate) const FORWARD: Direction = Direction { reverse: false, exclusive: false };
pub(crate) const REVERSE: Direction = Direction { reverse: true, exclusive: false };
pub(crate) const EXCLUSIVE: Direction = Direction { reverse: false, exclusive: true };
pub(crate) const REVERSE_EXCLUSIVE: Direction = Direction { reverse: true, exclusive: true };

/// h[t] = a[t]·h[t−1] + b[t] with a state in and a state out.
pub(crate) fn affine(how: Direction) -> Program {
    let mut p = Draft::new("affine");
    let (a, b, h0) = (p.param("a", "B L"), p.param("b", "B L"), p.param("h0", "B"));
    let one = p.float(1.0);
    let h = p.scan("L", operators::affine(Ty::F64), &[a, b], &[one, h0], how)[1];
    let end = if how.reverse { p.first("L", h, h0) } else { p.last("L", h, h0) };
    p.output("h", "B L", h);
    p.output("h_last", "B", end);
    p.finish()
}

/// Both fields of the affine scan are outputs, and both have a state in.
pub(crate) fn affine_all_states() -> Program {
    let mut p = Draft::new("affine_all_states");
    let (a, b) = (p.param("a", "B L"), p.param("b", "B L"));
    let (a0, h0) = (p.param("a0", "B"), p.param("h0", "B"));
    let s = p.scan("L", operators::affine(Ty::F64), &[a, b], &[a0, h0], FORWARD);
    let product = p.mul(s[0], s[1]);
    p.output("a_total", "B L", s[0]);
    p.output("y", "B L", product);
    p.finish()
}

/// The exponential moving average: a decay that is one number.
pub(crate) fn ema() -> Program {
    let mut p = Draft::new("ema");
    let (decay, x, h0) = (p.param("decay", ""), p.param("x", "L"), p.param("h0", ""));
    let one = p.float(1.0);
    let rest = p.binary(Binary::Sub, one, decay);
    let weighted = p.mul(rest, x);
    let h = p.scan("L", operators::affine(Ty::F64), &[decay, weighted], &[one, h0], FORWARD)[1];
    let last = p.last("L", h, h0);
    p.output("y", "L", h);
    p.output("last", "", last);
    p.finish()
}

/// Mamba's S6.
pub(crate) fn selective_scan() -> Program {
    let mut p = Draft::new("selective_scan");
    let (u, delta) = (p.param("u", "B D L"), p.param("delta", "B D L"));
    let (a, b, c) = (p.param("a", "D N"), p.param("b", "B N L"), p.param("c", "B N L"));
    let (skip, h0) = (p.param("skip", "D"), p.param("h0", "B D N"));
    let exponent = p.mul(delta, a);
    let a_bar = p.unary(Unary::Exp, exponent);
    let b_bar = p.mul(delta, b);
    let driven = p.mul(b_bar, u);
    let one = p.float(1.0);
    let h = p.scan("L", operators::affine(Ty::F64), &[a_bar, driven], &[one, h0], FORWARD)[1];
    let read = p.mul(c, h);
    let sum = p.sum("N", read);
    let skipped = p.mul(skip, u);
    let y = p.add(sum, skipped);
    let h_last = p.last("L", h, h0);
    p.output("y", "B D L", y);
    p.output("h_last", "B D N", h_last);
    p.finish()
}

/// Monoid attention: a decay without payload axes over outer products.
pub(crate) fn log_decay(how: Direction) -> Program {
    let mut p = Draft::new("log_decay");
    let (g, k, v, q) = (p.param("g", "L"), p.param("k", "L K"), p.param("v", "L V"), p.param("q", "L K"));
    let x0 = p.param("x0", "K V");
    let kv = p.mul(k, v);
    let zero = p.float(0.0);
    let s = p.scan("L", operators::log_decay(Ty::F64), &[g, kv], &[zero, x0], how);
    let read = p.mul(q, s[1]);
    let y = p.sum("K", read);
    p.output("y", "L V", y);
    p.output("g_total", "L", s[0]);
    p.finish()
}

/// The last state of a log-decay scan: nothing but z comes back.
pub(crate) fn log_decay_total() -> Program {
    let mut p = Draft::new("log_decay_total");
    let (g, x) = (p.param("g", "L"), p.param("x", "L K"));
    let total = p.reduce("L", operators::log_decay(Ty::F64), &[g, x]);
    p.output("y", "K", total[1]);
    p.finish()
}

/// Softmax attention of one query with a vector payload.
pub(crate) fn attention() -> Program {
    let mut p = Draft::new("attention");
    let (s, v) = (p.param("s", "Q T"), p.param("v", "T V"));
    let one = p.float(1.0);
    let total = p.reduce("T", operators::softmax(Ty::F64), &[s, one, v]);
    let y = p.binary(Binary::Div, total[2], total[1]);
    let ln = p.unary(Unary::Ln, total[1]);
    let lse = p.add(total[0], ln);
    p.output("y", "Q V", y);
    p.output("lse", "Q", lse);
    p.finish()
}

/// Causal softmax attention as a scan with a state in and out.
pub(crate) fn attention_scan(how: Direction) -> Program {
    let mut p = Draft::new("attention_scan");
    let (s, v) = (p.param("s", "T"), p.param("v", "T V"));
    let (m0, d0, o0) = (p.param("m0", ""), p.param("d0", ""), p.param("o0", "V"));
    let one = p.float(1.0);
    let states = p.scan("T", operators::softmax(Ty::F64), &[s, one, v], &[m0, d0, o0], how);
    let y = p.binary(Binary::Div, states[2], states[1]);
    p.output("y", "T V", y);
    let last: Vec<Value> = states.iter().zip([m0, d0, o0]).map(|(s, init)| p.last("T", *s, init)).collect();
    let ln = p.unary(Unary::Ln, last[1]);
    let lse = p.add(last[0], ln);
    p.output("lse", "", lse);
    p.finish()
}

/// A scan of several states of which every field is an output.
pub(crate) fn states(operator: Operator, how: Direction, with_init: bool) -> Program {
    let mut p = Draft::new("states");
    let names: Vec<String> = operator.fields.iter().map(|f| f.name.clone()).collect();
    let elements: Vec<Value> = names.iter().map(|name| p.param(name, "B T")).collect();
    let init: Vec<Value> = names.iter().filter(|_| with_init).map(|name| p.param(&format!("{name}0"), "B")).collect();
    let states = p.scan("T", operator, &elements, &init, how);
    for (name, state) in names.iter().zip(states) {
        p.output(&format!("{name}_out"), "B T", state);
    }
    p.finish()
}

/// A reduction of which every float field is an output.
pub(crate) fn totals(operator: Operator) -> Program {
    let mut p = Draft::new("totals");
    let fields = operator.fields.clone();
    let elements: Vec<Value> = fields.iter().map(|f| p.param(&f.name, "B T")).collect();
    let totals = p.reduce("T", operator, &elements);
    for (field, total) in fields.iter().zip(totals) {
        p.output(&format!("{}_out", field.name), "B", total);
    }
    p.finish()
}

/// The value of an argmax, with the index as another output.
pub(crate) fn argmax() -> Program {
    let mut p = Draft::new("argmax");
    let x = p.param("x", "B T");
    let axis = p.axis("T");
    let index = p.0.index(axis).unwrap();
    let total = p.reduce("T", operators::argmax(Ty::F64), &[x, index]);
    p.output("value", "B", total[0]);
    p.output("index", "B", total[1]);
    p.finish()
}

/// The affine scan over packed sequences.
pub(crate) fn segmented_affine() -> Program {
    let mut p = Draft::new("segmented_affine");
    let (a, b) = (p.param("a", "T"), p.param("b", "T D"));
    let (axis, list) = (p.axis("T"), p.axis("S"));
    let offsets = p.0.param("offsets", &[list], Elem::I32, None).unwrap();
    let start = p.0.starts(axis, list, offsets).unwrap();
    let h = p.scan("T", segmented(&operators::affine(Ty::F64)).unwrap(), &[start, a, b], &[], FORWARD)[2];
    p.output("h", "T D", h);
    p.finish()
}

/// Positions: shifts by one and more in both directions, ends, and values that lack the axis.
pub(crate) fn positions() -> Program {
    let mut p = Draft::new("positions");
    let (x, c, f) = (p.param("x", "B T"), p.param("c", "B"), p.param("f", "B"));
    let (one_back, two_on) = (p.shift("T", 1, x, f), p.shift("T", -2, x, c));
    let three_back = p.shift("T", 3, c, f);
    let product = p.mul(one_back, two_on);
    let y = p.add(product, three_back);
    let (last, first) = (p.last("T", y, c), p.first("T", x, f));
    let ends = p.mul(last, first);
    let outer = p.last("T", c, f);
    let wide = p.broadcast(ends, "B T");
    p.output("y", "B T", y);
    p.output("ends", "B", ends);
    p.output("outer", "B T", outer);
    p.output("wide", "B T", wide);
    p.finish()
}

/// A parameter used many times, over different axes, in one program.
pub(crate) fn many_uses() -> Program {
    let mut p = Draft::new("many_uses");
    let (x, w) = (p.param("x", "D"), p.param("w", "B D"));
    let product = p.mul(x, w);
    let square = p.mul(product, product);
    let (over_b, over_d) = (p.sum("B", square), p.sum("D", product));
    let y = p.mul(over_b, x);
    let z = p.mul(over_d, x);
    let total = p.sum("D", z);
    let counted = p.sum("B", x);
    let y = p.add(y, counted);
    p.output("y", "B D", y);
    p.output("total", "B", total);
    p.finish()
}

/// A running maximum and its position-weighted products: state-dependent coefficients that are 0 or 1.
pub(crate) fn running_max() -> Program {
    let mut p = Draft::new("running_max");
    let (x, m0) = (p.param("x", "B T"), p.param("m0", "B"));
    let m = p.scan("T", operators::max(Ty::F64), &[x], &[m0], FORWARD)[0];
    let weighted = p.mul(m, x);
    p.output("y", "B T", weighted);
    p.finish()
}
