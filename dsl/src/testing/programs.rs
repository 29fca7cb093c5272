//! Random programs.

use crate::build::{Builder, Built, Direction};
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Binary, Literal, Op, OperatorId, Program, Unary, Value};
use crate::rng::Rng;

use super::families::{Domain, Family, family};

/// Names of axes; a program has two or three of them, and S for a list of offsets.
const AXES: [&str; 3] = ["A", "L", "K"];

/// The parts that random programs are made of.
#[derive(Clone, Debug)]
pub struct Ingredients {
    /// Element types of the parameters.
    pub elems: Vec<Elem>,
    /// The most operations, each of a few nodes.
    pub steps: usize,
    /// Only operations that are differentiable almost everywhere, and float outputs only.
    pub differentiable: bool,
}

impl Default for Ingredients {
    fn default() -> Ingredients {
        Ingredients { elems: vec![Elem::Call], steps: 8, differentiable: false }
    }
}

/// A random valid program of a seed: maps, scans, reductions and positions along several axes. Its values stay of
/// moderate size for inputs in [−1, 1].
pub fn program(seed: u64, ingredients: &Ingredients) -> Program {
    let mut generator = Generator::new(seed, ingredients);
    for _ in 0..1 + generator.rng.below(ingredients.steps) {
        generator.step();
    }
    generator.finish()
}

/// A program under construction, and the values that more can be made of.
struct Generator<'a> {
    builder: Builder,
    rng: Rng,
    ingredients: &'a Ingredients,
    axes: Vec<Axis>,
    floats: Vec<Value>,
    others: Vec<Value>,
}

const VALID: &str = "the program stays valid";

/// Beginning and end.
impl Generator<'_> {
    fn new(seed: u64, ingredients: &Ingredients) -> Generator<'_> {
        let (mut rng, mut builder) = (Rng::new(seed), Builder::new("random"));
        let names = &AXES[..2 + rng.below(2)];
        let axes = names.iter().map(|name| builder.axis(name).expect(VALID)).collect();
        let mut generator = Generator { builder, rng, ingredients, axes, floats: vec![], others: vec![] };
        generator.params();
        generator
    }

    /// Parameters: one over all axes, a few over some, one with a default.
    fn params(&mut self) {
        let all = self.axes.clone();
        self.float_param("x", &all, None);
        for k in 0..1 + self.rng.below(3) {
            let axes = self.some_axes();
            self.float_param(&format!("p{k}"), &axes, None);
        }
        let axes = self.some_axes();
        self.float_param("optional", &axes, Some(Literal::Float(0.5)));
        if !self.ingredients.differentiable {
            let axes = self.some_axes();
            let elem = self.rng.pick(&[Elem::I32, Elem::I64, Elem::U32, Elem::U64, Elem::Bool]);
            let value = self.builder.param("n", &axes, elem, None).expect(VALID);
            self.others.push(value);
        }
    }

    fn float_param(&mut self, name: &str, axes: &[Axis], default: Option<Literal>) {
        let elem = self.rng.pick(&self.ingredients.elems);
        let value = self.builder.param(name, axes, elem, default).expect(VALID);
        self.floats.push(value);
    }

    /// A random sequence of some of the axes.
    fn some_axes(&mut self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = self.axes.clone();
        axes.retain(|_| !self.rng.once_in(3));
        self.shuffle(axes)
    }

    fn shuffle(&mut self, mut axes: Vec<Axis>) -> Vec<Axis> {
        for i in (1..axes.len()).rev() {
            axes.swap(i, self.rng.below(i + 1));
        }
        axes
    }

    /// The latest values as outputs.
    fn finish(mut self) -> Program {
        let mut outputs: Vec<Value> = self.floats.iter().rev().take(2).copied().collect();
        outputs.extend(self.others.last());
        for (k, value) in outputs.into_iter().enumerate() {
            let extra = self.some_axes().into_iter().collect::<AxisSet>();
            let axes = self.axes_of(value).union(extra).iter().collect();
            let axes = self.shuffle(axes);
            let elem = self.output_elem(value);
            self.builder.output(&format!("y{k}"), &axes, elem, value).expect(VALID);
        }
        self.builder.finish()
    }

    fn output_elem(&mut self, value: Value) -> Elem {
        let ty = self.builder.ty(value).expect(VALID);
        if ty.is_float() { self.rng.pick(&self.ingredients.elems) } else { ty.elem().unwrap_or(Elem::Bool) }
    }
}

/// Operations.
impl Generator<'_> {
    /// Adds one operation to the values.
    fn step(&mut self) {
        let value = match self.rng.below(10) {
            0 | 1 => self.unary(),
            2 | 3 => self.binary(),
            4 => self.choice(),
            5 => self.position(),
            6 | 7 => return self.combination(true),
            8 => return self.combination(false),
            _ => return self.discrete(),
        };
        self.floats.push(value.expect(VALID));
    }

    fn unary(&mut self) -> Built {
        let x = self.float();
        let smooth = [Unary::Tanh, Unary::Sigmoid, Unary::Softplus, Unary::Silu, Unary::Sin, Unary::Cos, Unary::Neg];
        let kinked = [Unary::Abs, Unary::Relu];
        let bounded = [Unary::Exp, Unary::Exp2, Unary::Powi(3), Unary::Powi(2)];
        let positive = [Unary::Ln, Unary::Log1p, Unary::Sqrt, Unary::Rsqrt, Unary::Recip, Unary::Powi(-2)];
        match self.rng.below(4) {
            0 => self.apply(&smooth, x),
            1 => self.apply(&kinked, x),
            2 => self.inside(Domain::Real, x).and_then(|x| self.apply(&bounded, x)),
            _ => self.inside(Domain::Positive, x).and_then(|x| self.apply(&positive, x)),
        }
    }

    fn apply(&mut self, ops: &[Unary], x: Value) -> Built {
        let op = self.rng.pick(ops);
        self.builder.unary(op, x)
    }

    fn binary(&mut self) -> Built {
        let (a, b) = (self.float(), self.float());
        let op = self.rng.pick(&[Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min]);
        let b = match op {
            Binary::Div => self.inside(Domain::Positive, b)?,
            Binary::Mul => self.inside(Domain::Real, b)?,
            _ => b,
        };
        self.builder.binary(op, a, b)
    }

    fn choice(&mut self) -> Built {
        let (condition, a, b) = (self.condition()?, self.float(), self.float());
        self.builder.select(condition, a, b)
    }

    /// A comparison with a constant that nothing is likely to equal: rounding must not turn it.
    fn condition(&mut self) -> Built {
        let (x, limit) = (self.float(), self.rng.between(-0.5, 0.5));
        let limit = self.builder.float(Ty::F32, limit)?;
        let op = self.rng.pick(&[Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge]);
        self.builder.binary(op, x, limit)
    }

    fn position(&mut self) -> Built {
        let (axis, value) = (self.axis(), self.float());
        let outside = self.float_without(axis)?;
        match self.rng.below(4) {
            0 => self.builder.last(axis, value, outside),
            1 => self.builder.first(axis, value, outside),
            2 => {
                let axes = AxisSet::of(axis);
                self.builder.broadcast(value, axes)
            }
            _ => {
                let by = self.rng.below(7) as i64 - 3;
                self.builder.shift(axis, by, value, outside)
            }
        }
    }

    /// A scan or a reduction by a random operator; every field becomes a value.
    fn combination(&mut self, scanned: bool) {
        let (axis, ty) = (self.axis(), self.common_type());
        let Family { operator, domains } = family(&mut self.rng, ty, self.ingredients.differentiable);
        let id = self.builder.operator(operator);
        let elements: Vec<Value> = domains.iter().map(|d| self.element(*d, None)).collect();
        let fields = if scanned {
            let init = if self.rng.once_in(2) { self.init(&domains, axis) } else { vec![] };
            let direction = Direction { reverse: self.rng.once_in(2), exclusive: self.rng.once_in(3) };
            self.scan(axis, id, &elements, &init, direction)
        } else {
            self.reduce(axis, id, &elements)
        };
        for field in fields {
            let is_float = self.builder.ty(field).expect(VALID).is_float();
            if is_float { self.floats.push(field) } else { self.others.push(field) }
        }
    }

    fn init(&mut self, domains: &[Domain], axis: Axis) -> Vec<Value> {
        domains.iter().map(|d| self.element(*d, Some(axis))).collect()
    }

    fn reduce(&mut self, axis: Axis, id: OperatorId, elements: &[Value]) -> Vec<Value> {
        let elements = self.fitting(id, elements);
        self.builder.reduce(axis, id, &elements).expect(VALID)
    }

    fn scan(
        &mut self,
        axis: Axis,
        id: OperatorId,
        elements: &[Value],
        init: &[Value],
        direction: Direction,
    ) -> Vec<Value> {
        let (elements, init) = (self.fitting(id, elements), self.fitting(id, init));
        self.builder.scan(axis, id, &elements, &init, direction).expect(VALID)
    }

    /// Elements converted to the types of an operator's fields.
    fn fitting(&mut self, id: OperatorId, elements: &[Value]) -> Vec<Value> {
        let fields = self.builder.program().operator(id).fields.clone();
        let elems = fields.into_iter().map(|field| field.ty.elem().unwrap_or(Elem::Call));
        elements.iter().zip(elems).map(|(v, elem)| self.builder.convert(elem, *v).expect(VALID)).collect()
    }

    /// An integer or a bool.
    fn discrete(&mut self) {
        if self.ingredients.differentiable {
            return self.segment();
        }
        let axis = self.axis();
        let value = match self.rng.below(4) {
            0 => self.builder.index(axis),
            1 => self.builder.size(axis),
            2 => self.condition(),
            _ => return self.segment(),
        };
        self.others.push(value.expect(VALID));
    }

    /// The value with every segment's first element in place of what is there.
    fn segment(&mut self) {
        let (axis, value, other) = (self.axes[1], self.float(), self.float());
        let list = self.builder.axis("S").expect(VALID);
        let offsets = match self.builder.program().param("offsets") {
            Some(k) => param_node(self.builder.program(), k),
            None => self.builder.param("offsets", &[list], Elem::I32, None).expect(VALID),
        };
        let starts = self.builder.starts(axis, list, offsets).expect(VALID);
        let value = self.builder.select(starts, value, other).expect(VALID);
        self.floats.push(value);
    }
}

/// The node of a parameter.
fn param_node(program: &Program, k: u32) -> Value {
    Value(program.nodes.iter().position(|node| node.op == Op::Param(k)).map_or(0, |i| i as u32))
}

/// Operands.
impl Generator<'_> {
    fn axis(&mut self) -> Axis {
        self.rng.pick(&self.axes)
    }

    fn axes_of(&self, value: Value) -> AxisSet {
        self.builder.axes_of(value).expect(VALID)
    }

    /// A float, a late one rather than an early one.
    fn float(&mut self) -> Value {
        let n = self.floats.len();
        let late = n - 1 - self.rng.below(n.min(3));
        let any = self.rng.below(n);
        self.floats[if self.rng.once_in(2) { late } else { any }]
    }

    /// A float that does not vary along an axis.
    fn float_without(&mut self, axis: Axis) -> Built {
        let fitting: Vec<Value> = self.floats.iter().copied().filter(|v| !self.axes_of(*v).contains(axis)).collect();
        if fitting.is_empty() { self.builder.float(Ty::F32, 0.25) } else { Ok(self.rng.pick(&fitting)) }
    }

    /// The widest type of the parameters.
    fn common_type(&self) -> Ty {
        let types = self.floats.iter().map(|v| self.builder.ty(*v).expect(VALID));
        types.reduce(|a, b| a.join(b).unwrap_or(a)).unwrap_or(Ty::F64)
    }

    /// An element of a field, without an axis if one is given.
    fn element(&mut self, domain: Domain, without: Option<Axis>) -> Value {
        let x = match without {
            Some(axis) => self.float_without(axis).expect(VALID),
            None => self.float(),
        };
        self.inside(domain, x).expect(VALID)
    }

    /// A value of a domain that varies with x.
    fn inside(&mut self, domain: Domain, x: Value) -> Built {
        let ty = self.builder.ty(x)?;
        let b = &mut self.builder;
        match domain {
            Domain::Real => b.unary(Unary::Tanh, x),
            Domain::Contraction => {
                let (half, x) = (b.float(ty, 0.5)?, b.unary(Unary::Tanh, x)?);
                b.binary(Binary::Mul, half, x)
            }
            Domain::Positive => {
                let (part, x) = (b.float(ty, 0.25)?, b.unary(Unary::Sigmoid, x)?);
                b.binary(Binary::Add, part, x)
            }
            Domain::Decay => {
                let x = b.unary(Unary::Softplus, x)?;
                b.unary(Unary::Neg, x)
            }
            Domain::Flag => {
                let limit = b.float(ty, 0.6)?;
                b.binary(Binary::Gt, x, limit)
            }
            Domain::Below(n) => {
                let (scale, x) = (b.float(ty, f64::from(n) - 0.5)?, b.unary(Unary::Sigmoid, x)?);
                let scaled = b.binary(Binary::Mul, scale, x)?;
                b.convert(Elem::I64, scaled)
            }
        }
    }
}
