//! Products of matrices.

use oplus_dsl::ir::{Binary, Literal, Op, Value};
use oplus_dsl::{Elem, Ty};

use super::*;
use crate::cpu::plan::products::{Factor, Payload};
use crate::cpu::tile::{self, Matrix, MatrixSource, Product, Products};

impl Lower<'_> {
    /// The operands of a node that are computed before it: matrices that lie in tensors are not.
    pub(super) fn computed_operands(&self, value: Value) -> Vec<Value> {
        let Some(form) = self.drafts.products.form(value) else {
            return self.drafts.program.node(value).op.operands().to_vec();
        };
        let sides =
            form.payloads.iter().flat_map(|p| [(Some(&p.left), form.gauge.is_some()), (p.right.as_ref(), false)]);
        let computed = sides.filter_map(|(side, is_weight)| side.filter(|s| is_weight || self.tensor_of(s).is_none()));
        let all = computed.chain([&form.outside]).flat_map(|factor| factor.factors.iter().chain(&factor.conditions));
        all.copied().chain(form.gauge.map(|gauge| gauge.score)).collect()
    }

    /// The tensor that a matrix is, if its elements can be multiplied as they lie.
    fn tensor_of(&self, factor: &Factor) -> Option<&Tensor> {
        let ([value], []) = (&factor.factors[..], &factor.conditions[..]) else { return None };
        let program = self.drafts.program;
        if self.drafts.is_borrowed(self.stage, *value) {
            return self.memory.temporaries.get(value);
        }
        match program.node(*value).op {
            Op::Param(k) if matches!(program.params[k as usize].elem, Elem::F32 | Elem::F64) => {
                self.memory.params[k as usize].as_ref()
            }
            _ => None,
        }
    }

    /// Lowers a contraction that floats.
    pub(super) fn product(&mut self, tuple: Value) {
        let Some(form) = self.drafts.products.form(tuple) else { return };
        let (ty, axis) = (self.field_type(tuple), self.summed(tuple));
        let payload = &form.payloads[0];
        let Some(right) = &payload.right else { return };
        let [left, right] = [&payload.left, right].map(|factor| self.matrix(factor, ty));
        let dims = (left.dims | right.dims) & !(1 << axis);
        let operands = left.registers().chain(right.registers()).collect();
        let product = TileOp::Product(Box::new(Product { axis, left, right }));
        let sum = self.emit_over(dims, product, ty, operands);
        let result = self.scaled(sum, &form.outside, ty);
        self.fields.insert((tuple, 0), result);
    }

    /// The elements of a sum or merge by products; `None` for any other.
    pub(super) fn weighted(&mut self, tuple: Value) -> Option<Products> {
        let form = self.drafts.products.form(tuple)?;
        let ty = self.field_type(tuple);
        let gauge = form.gauge.map(|gauge| {
            let score = self.spread(gauge.score);
            tile::Gauge { field: gauge.field, score, rate: gauge.rate }
        });
        let payloads = form.payloads.iter().map(|Payload { field, left, right }| {
            let right = right.as_ref().map(|right| self.matrix(right, ty));
            if gauge.is_none() {
                return tile::Payload { field: *field, left: Some(self.matrix(left, ty)), seen: None, right };
            }
            let factors = Factor { factors: left.factors.clone(), conditions: vec![] };
            let seen = self.conjunction(&left.conditions);
            let left = (!factors.factors.is_empty()).then(|| self.matrix(&factors, ty));
            tile::Payload { field: *field, left, seen, right }
        });
        let payloads = payloads.collect();
        Some(Products { gauge, payloads })
    }

    /// The register of a value, over all of the value's axes.
    fn spread(&mut self, value: Value) -> Reg {
        let register = self.value(value, &Moves::default());
        let Register { ty, dims, .. } = self.code.registers[register.0];
        let all = self.dims(self.drafts.program.node(value).axes);
        if dims == all {
            return register;
        }
        let always = self.constant(Ty::Bool, Literal::Bool(true));
        self.emit_over(all, TileOp::Select, ty, vec![always, register, register])
    }

    fn field_type(&self, tuple: Value) -> Ty {
        let program = self.drafts.program;
        let Op::Reduce { operator, .. } = program.node(tuple).op else { return Ty::F64 };
        program.operator(operator).fields[0].ty
    }

    /// The position of the axis that is summed.
    fn summed(&self, tuple: Value) -> usize {
        super::super::draft::axis_of(&self.drafts.program.node(tuple).op).map_or(0, |axis| self.position(axis))
    }

    fn matrix(&mut self, factor: &Factor, ty: Ty) -> Matrix {
        if let Some(tensor) = self.tensor_of(factor).cloned() {
            let (load, dims, _) = self.block(&tensor, &Moves::default());
            return Matrix { of: MatrixSource::Tensor(load), dims, mask: None };
        }
        let mask = self.conjunction(&factor.conditions);
        let product = self.product_of(None, &factor.factors, ty);
        let register = self.where_true(mask, product, ty);
        Matrix { of: MatrixSource::Register(register), dims: self.code.registers[register.0].dims, mask }
    }

    /// A register times a factor.
    fn scaled(&mut self, register: Reg, factor: &Factor, ty: Ty) -> Reg {
        let product = self.product_of(Some(register), &factor.factors, ty);
        let mask = self.conjunction(&factor.conditions);
        self.where_true(mask, product, ty)
    }

    /// The product of a register and some values; 1 if there are none.
    fn product_of(&mut self, first: Option<Reg>, factors: &[Value], ty: Ty) -> Reg {
        let factors: Vec<Reg> = factors.iter().map(|v| self.value(*v, &Moves::default())).collect();
        let multiply = |lower: &mut Self, x, y| lower.emit(TileOp::Binary(Binary::Mul), ty, vec![x, y]);
        let product = first.into_iter().chain(factors).collect::<Vec<Reg>>().into_iter();
        product.reduce(|x, y| multiply(self, x, y)).unwrap_or_else(|| self.constant(ty, Literal::Float(1.0)))
    }

    fn conjunction(&mut self, conditions: &[Value]) -> Option<Reg> {
        let conditions: Vec<Reg> = conditions.iter().map(|v| self.value(*v, &Moves::default())).collect();
        conditions.into_iter().reduce(|x, y| self.emit(TileOp::Binary(Binary::And), Ty::Bool, vec![x, y]))
    }

    /// The value where a condition is true, else 0.
    fn where_true(&mut self, mask: Option<Reg>, value: Reg, ty: Ty) -> Reg {
        let Some(mask) = mask else { return value };
        let zero = self.constant(ty, Literal::zero(ty));
        self.emit(TileOp::Select, ty, vec![mask, value, zero])
    }
}
