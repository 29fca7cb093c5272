//! Work taken out of the inner loop: products are regrouped by the axes of their factors. Final states become states.
//!
//! The inner loop runs over steps and states. Of the product delta·b·u only b has the state axis: as (delta·u)·b it
//! takes one multiplication per state, the other is per row and step. And exp(delta·a), where a does not change in
//! time, is 2^(delta·(a·log₂e)), where the bracket is computed once.
//!
//! A product of n factors rounds n − 1 times in any order, so the bound (n − 1)·ε of its relative error stays. The
//! argument x of the exponential rounds twice and log₂e once, which gives a relative error of at most 3·|x|·ε beside
//! that of 2ˣ; the exponential as written has |x|·ε from delta·a.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Node, Op, Program, Unary, Value};
use oplus_dsl::typing::TypeError;

/// The program with products regrouped and exponentials to base 2; the program itself where that cannot be.
pub(super) fn hoist(program: &Program, time: Axis, state: Axis) -> Program {
    Hoist::new(program, time, state).run().unwrap_or_else(|_| program.clone())
}

/// Regroups the products of two scans, of which the one of the tuple `back` runs after the other: factors that do not depend on it are
/// multiplied first.
pub(super) fn hoist_backward_scan(program: &Program, time: Axis, state: Axis, back: Value) -> Program {
    let mut late = vec![false; program.nodes.len()];
    late[back.0 as usize] = true;
    for (i, node) in program.nodes.iter().enumerate() {
        late[i] |= node.op.operands().iter().any(|v| late[v.0 as usize]);
    }
    let mut pass = Hoist { late: Some(late), ..Hoist::new(program, time, state) };
    pass.run().unwrap_or_else(|_| program.clone())
}

/// The uses of each node, as an operand or an output.
fn uses(program: &Program) -> Vec<u32> {
    let mut uses = vec![0; program.nodes.len()];
    let operands = program.nodes.iter().flat_map(|n| n.op.operands());
    operands.chain(program.outputs.iter().map(|o| o.value)).for_each(|v| uses[v.0 as usize] += 1);
    uses
}

struct Hoist<'p> {
    program: &'p Program,
    uses: Vec<u32>,
    time: Axis,
    state: Axis,
    builder: Builder,
    place: Vec<Value>,
    /// Whether each value depends on the second scan, where there are two.
    late: Option<Vec<bool>>,
}

impl<'p> Hoist<'p> {
    fn new(program: &'p Program, time: Axis, state: Axis) -> Hoist<'p> {
        let empty = Program { nodes: vec![], outputs: vec![], ..program.without_nodes() };
        let (uses, builder) = (uses(program), Builder::from_program(empty));
        Hoist { program, uses, time, state, builder, place: vec![], late: None }
    }

    fn run(&mut self) -> Result<Program, TypeError> {
        for node in &self.program.nodes {
            let value = self.node(node)?;
            self.place.push(value);
        }
        let mut hoisted = self.builder.clone().finish();
        hoisted.outputs = self.program.outputs.clone();
        hoisted.outputs.iter_mut().for_each(|o| o.value = self.place[o.value.0 as usize]);
        Ok(hoisted)
    }

    fn node(&mut self, node: &Node) -> Result<Value, TypeError> {
        let inner = node.ty == Ty::F32 && node.axes.contains(self.time) && node.axes.contains(self.state);
        match node.op {
            Op::Binary(Binary::Mul, x, y) if inner => {
                let factors = self.factors(&[x, y]);
                self.product(factors)
            }
            // An absent bias gives the value itself; only the sign of a zero may differ.
            Op::Binary(Binary::Add, x, zero) | Op::Binary(Binary::Add, zero, x) if self.is_zero(zero) => {
                Ok(self.place[x.0 as usize])
            }
            Op::Unary(Unary::Exp, x) if inner => match self.power(x)? {
                Some(power) => Ok(power),
                None => self.copy(node),
            },
            // In the walk these are the states at the end.
            Op::Last { value, .. } | Op::First { value, .. } => Ok(self.place[value.0 as usize]),
            _ => self.copy(node),
        }
    }

    fn copy(&mut self, node: &Node) -> Result<Value, TypeError> {
        let op = node.op.map_operands(|v| self.place[v.0 as usize]);
        let axes = if let Op::Broadcast(_) = op { node.axes } else { AxisSet::EMPTY };
        self.builder.append(op, node.ty, axes)
    }

    fn is_zero(&self, value: Value) -> bool {
        matches!(self.program.node(value).op, Op::Const(Literal::Float(x)) if x == 0.0)
    }

    /// The factors of a product of values; a factor that is a product for this use alone is taken apart.
    fn factors(&self, values: &[Value]) -> Vec<Value> {
        let (mut factors, mut open) = (vec![], values.to_vec());
        open.reverse();
        while let Some(value) = open.pop() {
            match self.program.node(value).op {
                Op::Binary(Binary::Mul, x, y) if self.uses[value.0 as usize] == 1 => open.extend([y, x]),
                _ => factors.push(value),
            }
        }
        factors
    }

    /// Whether a value changes along time, and along states.
    fn changes(&self, value: Value) -> (bool, bool) {
        let axes = self.program.node(value).axes;
        (axes.contains(self.time), axes.contains(self.state))
    }

    /// A product of factors without states first, then of those with states but without time, then of the others. A factor that has
    /// neither time nor states joins those without time, if there are any: they are multiplied once, and not at every step.
    fn product(&mut self, factors: Vec<Value>) -> Result<Value, TypeError> {
        let slow = factors.iter().any(|v| self.changes(*v) == (false, true));
        let joins = |v: &Value| slow && !self.changes(*v).0;
        let (fixed, moving): (Vec<Value>, _) = factors.into_iter().partition(|v| !self.changes(*v).1 && !joins(v));
        let (slow, mut fast): (Vec<Value>, Vec<Value>) = moving.into_iter().partition(|v| !self.changes(*v).0);
        if let Some(late) = &self.late {
            fast.sort_by_key(|v| (late[v.0 as usize], self.place[v.0 as usize]));
        }
        let groups = [fixed, slow, fast].map(|group| self.chain(&group));
        let mut product = None;
        for group in groups {
            product = self.times(product, group?)?;
        }
        self.some(product)
    }

    fn chain(&mut self, factors: &[Value]) -> Result<Option<Value>, TypeError> {
        let mut product = None;
        for factor in factors {
            product = self.times(product, Some(self.place[factor.0 as usize]))?;
        }
        Ok(product)
    }

    fn times(&mut self, x: Option<Value>, y: Option<Value>) -> Result<Option<Value>, TypeError> {
        match (x, y) {
            (Some(x), Some(y)) => self.builder.binary(Binary::Mul, x, y).map(Some),
            (one, None) | (None, one) => Ok(one),
        }
    }

    fn some(&mut self, product: Option<Value>) -> Result<Value, TypeError> {
        product.map_or_else(|| self.builder.float(Ty::F32, 1.0), Ok)
    }

    /// eˣ as a power of 2, where x is a product with a factor that does not change in time.
    fn power(&mut self, x: Value) -> Result<Option<Value>, TypeError> {
        let product = matches!(self.program.node(x).op, Op::Binary(Binary::Mul, ..));
        let factors = if product { self.factors(&[x]) } else { vec![] };
        let factors = if self.uses[x.0 as usize] > 1 { self.operands(x) } else { factors };
        let (changing, constant): (Vec<Value>, Vec<Value>) = factors.into_iter().partition(|v| self.changes(*v).0);
        let Some(constant) = self.chain(&constant)? else { return Ok(None) };
        let log2_e = self.builder.float(Ty::F32, std::f64::consts::LOG2_E)?;
        let constant = self.builder.binary(Binary::Mul, constant, log2_e)?;
        let changing = self.product(changing)?;
        let exponent = self.builder.binary(Binary::Mul, changing, constant)?;
        self.builder.unary(Unary::Exp2, exponent).map(Some)
    }

    /// The factors of a product that others use too.
    fn operands(&self, x: Value) -> Vec<Value> {
        match self.program.node(x).op {
            Op::Binary(Binary::Mul, l, r) => self.factors(&[l, r]),
            _ => vec![],
        }
    }
}
