//! From the nodes of a stage to instructions on registers.

mod anchors;
mod moves;
mod products;
mod slots;

use std::collections::HashMap;
use std::sync::Arc;

use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Op, Value};
use oplus_dsl::walk::WorkList;
use oplus_dsl::{Elem, Ty};

use crate::cpu::tile::{Code, Gathered, Guard, Instruction, Load, Reg, Register, Term, TileOp};

use super::Source;
use super::draft::{Draft, Drafts};
use moves::{Move, Moves};

pub(super) use slots::share_memory;

/// A tensor in the memory of a stage.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) source: Source,
    /// Its axes and their strides.
    pub(super) axes: Vec<(Axis, i64)>,
    /// The element of index 0, 0, ….
    pub(super) offset: usize,
}

/// The moves of a value that is read where an index says.
fn gathered(moves: &Moves, axis: Axis, (index, of_index): &(Value, Moves)) -> Moves {
    moves.with(axis, Move::Gather { index: *index, moves: of_index.clone(), by: 0 })
}

/// The facts that are known about memory when a stage is lowered.
pub(super) struct Memory<'a> {
    /// The tensors given for parameters; `None` for those that take their default.
    pub(super) params: &'a [Option<Tensor>],
    /// The tensors of anchored values that stages pass on.
    pub(super) temporaries: &'a HashMap<Value, Tensor>,
}

/// The lowering of one stage.
pub(super) struct Lower<'a> {
    drafts: &'a Drafts<'a>,
    draft: &'a Draft,
    stage: usize,
    order: &'a [Axis],
    memory: Memory<'a>,
    pub(super) code: Code,
    /// The tensors that are read.
    pub(super) sources: Vec<Source>,
    known: HashMap<(Value, Moves), Reg>,
    guards: HashMap<Guard, Reg>,
    /// The registers of each field of the scans and reductions of the stage.
    fields: HashMap<(Value, u32), Reg>,
    /// The anchored values of the stage that are needed, with their fields.
    needed: Vec<Vec<u32>>,
}

impl<'a> Lower<'a> {
    pub(super) fn new(drafts: &'a Drafts<'a>, stage: usize, order: &'a [Axis], memory: Memory<'a>) -> Lower<'a> {
        Lower {
            drafts,
            draft: &drafts.stages[stage],
            stage,
            order,
            memory,
            code: Code::default(),
            sources: vec![],
            known: HashMap::new(),
            guards: HashMap::new(),
            fields: HashMap::new(),
            needed: vec![vec![]; drafts.program.nodes.len()],
        }
    }

    /// Lowers some values, in the order of the program so that no chain of operands is followed far.
    pub(super) fn values(&mut self, roots: &[Value]) {
        let needed = self.needed_in_place(roots);
        for at in (0..needed.len()).filter(|at| needed[*at]) {
            if let Op::Field(tuple, k) = &self.drafts.program.nodes[at].op {
                self.needed[tuple.0 as usize].push(*k);
            }
        }
        for at in (0..needed.len()).filter(|at| needed[*at]) {
            let value = Value(at as u32);
            match self.drafts.program.nodes[at].op {
                Op::Reduce { .. } if self.drafts.products.floats(value) => self.product(value),
                Op::Scan { .. } | Op::Reduce { .. } => self.combination(value),
                _ => {
                    self.value(value, &Moves::default());
                }
            }
        }
    }

    /// Which nodes are computed at the tile's own indices.
    fn needed_in_place(&self, roots: &[Value]) -> Vec<bool> {
        let program = self.drafts.program;
        let mut needed = vec![false; program.nodes.len()];
        roots.iter().for_each(|root| needed[root.0 as usize] = true);
        for at in (0..needed.len()).rev() {
            let value = Value(at as u32);
            if !needed[at] || self.drafts.is_borrowed(self.stage, value) {
                continue;
            }
            let operands = self.computed_operands(value);
            let moved = usize::from(self.moves_operand(value));
            operands.iter().skip(moved).for_each(|v| needed[v.0 as usize] = true);
        }
        needed
    }

    /// Whether a node reads its first operand at other indices than its own.
    fn moves_operand(&self, value: Value) -> bool {
        match self.drafts.program.node(value).op {
            Op::Shift { axis, .. } => !self.holds(axis),
            Op::Gather { .. } => true,
            Op::Last { axis, .. } | Op::First { axis, .. } => {
                self.size(axis) == 0 || !self.holds(axis) && !self.captures(value, axis)
            }
            _ => false,
        }
    }

    /// Whether the value at one index of an axis is taken while the axis streams past.
    fn captures(&self, value: Value, axis: Axis) -> bool {
        self.drafts.home[value.0 as usize] == Some(self.stage) && self.draft.streams(axis)
    }

    /// The register of a value that has been lowered.
    pub(super) fn register(&mut self, value: Value) -> Reg {
        self.value(value, &Moves::default())
    }

    fn size(&self, axis: Axis) -> usize {
        self.drafts.sizes[axis.0 as usize]
    }

    fn position(&self, axis: Axis) -> usize {
        self.order.iter().position(|a| *a == axis).unwrap_or_default()
    }

    fn dims(&self, axes: AxisSet) -> u64 {
        (0..self.order.len()).filter(|k| axes.contains(self.order[*k])).fold(0, |dims, k| dims | 1 << k)
    }

    fn holds(&self, axis: Axis) -> bool {
        self.draft.whole.contains(axis)
    }

    /// The value with its axes moved: computed once per value and moves.
    fn value(&mut self, value: Value, moves: &Moves) -> Reg {
        let key = self.key(value, moves);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let mut work = WorkList::of(key.clone());
        while let Some((value, moves)) = work.next(|key| self.waits_for(key)) {
            let register = self.compute(value, &moves);
            self.known.insert((value, moves), register);
        }
        self.known[&key]
    }

    /// A value with those of the moves that matter to it.
    fn key(&self, value: Value, moves: &Moves) -> (Value, Moves) {
        (value, moves.along(self.drafts.program.node(value).axes))
    }

    /// The values that must be lowered before a value, in order; `None` if it is lowered already. See [`Lower::compute`].
    fn waits_for(&self, key: &(Value, Moves)) -> Option<Vec<(Value, Moves)>> {
        if self.known.contains_key(key) {
            return None;
        }
        let (value, moves) = key;
        let all = |values: &[Value], moves: &Moves| values.iter().map(|v| self.key(*v, moves)).collect();
        if self.drafts.is_borrowed(self.stage, *value) && self.memory.temporaries.contains_key(value) {
            return Some(vec![]);
        }
        Some(match &self.drafts.program.node(*value).op {
            Op::Shift { axis, value, fill, .. } if self.padded(*axis, *value, *fill, moves).is_some() => vec![],
            Op::Shift { axis, by, value, fill } => match moves.of(*axis) {
                Move::Pin(index) => match self.shifted(*axis, index, *by) {
                    Some(t) => all(&[*value], &moves.with(*axis, Move::Pin(t))),
                    None => all(&[*fill], moves),
                },
                Move::Shift(0) if self.holds(*axis) => all(&[*value, *fill], moves),
                Move::Shift(outer) => {
                    let further = moves.with(*axis, Move::Shift(outer.saturating_add(*by)));
                    vec![self.key(*value, &further), self.key(*fill, moves)]
                }
                gather @ Move::Gather { .. } => {
                    vec![self.key(*value, &moves.with(*axis, gather.shifted(*by))), self.key(*fill, moves)]
                }
            },
            Op::Gather { axis, value, index, .. } => {
                let index = self.key(*index, moves);
                vec![self.key(*value, &gathered(moves, *axis, &index)), index]
            }
            Op::Last { axis, value: over, empty } | Op::First { axis, value: over, empty } => {
                let is_last = matches!(self.drafts.program.node(*value).op, Op::Last { .. });
                match self.size(*axis) {
                    0 => all(&[*empty], moves),
                    _ if self.captures(*value, *axis) => all(&[*over, *empty], &Moves::default()),
                    _ if self.holds(*axis) => all(&[*over], moves),
                    size => all(&[*over], &moves.with(*axis, Move::Pin(if is_last { size - 1 } else { 0 }))),
                }
            }
            Op::Field(..) | Op::Scan { .. } | Op::Reduce { .. } => vec![],
            op => all(&op.operands(), moves),
        })
    }

    /// The index that a shift reads for an index, if there is one.
    fn shifted(&self, axis: Axis, index: usize, by: i64) -> Option<usize> {
        let there = (index as i64).checked_sub(by).filter(|t| (0..self.size(axis) as i64).contains(t));
        there.map(|t| t as usize)
    }

    fn compute(&mut self, value: Value, moves: &Moves) -> Reg {
        if self.drafts.is_borrowed(self.stage, value)
            && let Some(tensor) = self.memory.temporaries.get(&value)
        {
            let ty = self.drafts.program.node(value).ty;
            return self.load(&tensor.clone(), ty, moves, Literal::zero(ty));
        }
        let node = self.drafts.program.node(value);
        match &node.op {
            Op::Param(k) => self.param(*k, moves),
            Op::Const(literal) => self.constant(node.ty, *literal),
            Op::Size(axis) => self.constant(Ty::I64, Literal::Int(self.size(*axis) as i64)),
            Op::Index(axis) => self.index(*axis, moves),
            Op::Unary(op, a) => self.map(TileOp::Unary(*op), node.ty, &[*a], moves),
            Op::Binary(op, a, b) => self.map(TileOp::Binary(*op), node.ty, &[*a, *b], moves),
            Op::Select(c, a, b) => self.map(TileOp::Select, node.ty, &[*c, *a, *b], moves),
            Op::Convert(elem, a) => self.map(TileOp::Convert(*elem), node.ty, &[*a], moves),
            Op::Broadcast(a) => self.value(*a, moves),
            Op::Field(tuple, k) => self.fields[&(*tuple, *k)],
            Op::Last { axis, value: over, empty } => self.end(value, *axis, *over, *empty, moves, true),
            Op::First { axis, value: over, empty } => self.end(value, *axis, *over, *empty, moves, false),
            Op::Shift { axis, by, value, fill } => self.shift(*axis, *by, *value, *fill, moves),
            Op::Gather { axis, value, index, .. } => self.gather(*axis, *value, *index, moves),
            Op::Starts { axis, offsets, .. } => {
                let (axis, offsets) = (self.position(*axis), self.value(*offsets, moves));
                self.emit_over(1 << axis, TileOp::Starts { axis }, Ty::Bool, vec![offsets])
            }
            Op::Input(_) | Op::Scan { .. } | Op::Reduce { .. } | Op::MatrixScan(_) => {
                self.constant(node.ty, Literal::zero(node.ty))
            }
        }
    }

    fn map(&mut self, op: TileOp, ty: Ty, operands: &[Value], moves: &Moves) -> Reg {
        let operands: Vec<Reg> = operands.iter().map(|v| self.value(*v, moves)).collect();
        self.emit(op, ty, operands)
    }

    fn constant(&mut self, ty: Ty, literal: Literal) -> Reg {
        self.emit(TileOp::Const(literal), ty, vec![])
    }

    /// An instruction whose result varies as its operands do.
    fn emit(&mut self, op: TileOp, ty: Ty, operands: Vec<Reg>) -> Reg {
        let dims = operands.iter().fold(0, |dims, operand| dims | self.code.registers[operand.0].dims);
        self.emit_over(dims, op, ty, operands)
    }

    fn emit_over(&mut self, dims: u64, op: TileOp, ty: Ty, operands: Vec<Reg>) -> Reg {
        let result = self.fresh(ty, dims);
        self.code.instructions.push(Instruction { op, operands, result: Some(result), spent: 0 });
        result
    }

    fn fresh(&mut self, ty: Ty, dims: u64) -> Reg {
        let slot = self.code.registers.len();
        self.code.registers.push(Register { ty, dims, slot });
        Reg(slot)
    }

    fn param(&mut self, k: u32, moves: &Moves) -> Reg {
        let param = &self.drafts.program.params[k as usize];
        let ty = param.elem.value();
        match &self.memory.params[k as usize] {
            Some(tensor) => self.load(&tensor.clone(), ty, moves, Literal::zero(ty)),
            None => {
                let default = param.default.unwrap_or(Literal::zero(ty));
                let constant = self.constant(ty, default);
                let halves = matches!(param.elem, Elem::Bf16 | Elem::F16);
                if halves { self.emit(TileOp::Convert(param.elem), ty, vec![constant]) } else { constant }
            }
        }
    }

    fn load(&mut self, tensor: &Tensor, ty: Ty, moves: &Moves, fill: Literal) -> Reg {
        let (load, dims, indices) = self.block(tensor, moves);
        self.emit_over(dims, TileOp::Load(Load { fill, ..load }), ty, indices)
    }

    /// The block of a tensor, the axes over which it varies, and the registers that say indices of it.
    fn block(&mut self, tensor: &Tensor, moves: &Moves) -> (Load, u64, Vec<Reg>) {
        let known = self.sources.iter().position(|source| *source == tensor.source);
        let source = known.unwrap_or_else(|| {
            self.sources.push(tensor.source);
            self.sources.len() - 1
        });
        let mut load =
            Load { source, base: tensor.offset as i64, terms: vec![], gathered: vec![], fill: Literal::Int(0) };
        let (mut dims, mut indices) = (0, vec![]);
        for (axis, stride) in &tensor.axes {
            match moves.of(*axis) {
                Move::Pin(index) => load.base += index as i64 * stride,
                Move::Shift(by) => {
                    load.terms.push(Term { axis: self.position(*axis), stride: *stride, by });
                    dims |= 1 << self.position(*axis);
                }
                Move::Gather { index, moves, by } => {
                    let index = self.value(index, &moves);
                    load.gathered.push(Gathered { size: self.size(*axis), stride: *stride, by });
                    dims |= self.code.registers[index.0].dims;
                    indices.push(index);
                }
            }
        }
        (load, dims, indices)
    }

    fn index(&mut self, axis: Axis, moves: &Moves) -> Reg {
        match moves.of(axis) {
            Move::Pin(index) => self.constant(Ty::I64, Literal::Int(index as i64)),
            Move::Shift(by) => {
                let position = self.position(axis);
                let op = TileOp::Index { axis: position, offset: by.wrapping_neg() };
                self.emit_over(1 << position, op, Ty::I64, vec![])
            }
            Move::Gather { index, moves, by } => {
                let (index, by) = (self.value(index, &moves), self.constant(Ty::I64, Literal::Int(by)));
                self.emit(TileOp::Binary(Binary::Sub), Ty::I64, vec![index, by])
            }
        }
    }

    /// The value at the index of its axis that another value is; zero where that is none.
    fn gather(&mut self, axis: Axis, value: Value, index: Value, moves: &Moves) -> Reg {
        let there = gathered(moves, axis, &self.key(index, moves));
        let (value, index) = (self.value(value, &there), self.value(index, moves));
        let ty = self.code.registers[value.0].ty;
        let (first, end) = (self.constant(Ty::I64, Literal::Int(0)), self.size(axis) as i64);
        let end = self.constant(Ty::I64, Literal::Int(end));
        let above = self.emit(TileOp::Binary(Binary::Ge), Ty::Bool, vec![index, first]);
        let below = self.emit(TileOp::Binary(Binary::Lt), Ty::Bool, vec![index, end]);
        let inside = self.emit(TileOp::Binary(Binary::And), Ty::Bool, vec![above, below]);
        let nothing = self.constant(ty, Literal::zero(ty));
        self.emit(TileOp::Select, ty, vec![inside, value, nothing])
    }

    /// The value at index t − by. In an axis that the tile holds, that is a copy; a tensor is loaded from there; otherwise everything the
    /// value is computed from is read elsewhere, and `fill` is selected where nothing was.
    fn shift(&mut self, axis: Axis, by: i64, value: Value, fill: Value, moves: &Moves) -> Reg {
        if let Some((tensor, fill)) = self.padded(axis, value, fill, moves) {
            let ty = self.drafts.program.node(value).ty;
            return self.load(&tensor, ty, &moves.with(axis, Move::Shift(by)), fill);
        }
        match moves.of(axis) {
            Move::Pin(index) => match self.shifted(axis, index, by) {
                Some(t) => self.value(value, &moves.with(axis, Move::Pin(t))),
                None => self.value(fill, moves),
            },
            Move::Shift(0) if self.holds(axis) => {
                let (value, fill) = (self.value(value, moves), self.value(fill, moves));
                let dims = self.code.registers[value.0].dims | self.code.registers[fill.0].dims;
                let (ty, axis) = (self.code.registers[value.0].ty, self.position(axis));
                self.emit_over(dims | 1 << axis, TileOp::Shift { axis, by }, ty, vec![value, fill])
            }
            Move::Shift(outer) => {
                let total = outer.saturating_add(by);
                let shifted = self.value(value, &moves.with(axis, Move::Shift(total)));
                let fill = self.value(fill, moves);
                let inside = self.is_inside(axis, by, moves);
                let ty = self.code.registers[shifted.0].ty;
                self.emit(TileOp::Select, ty, vec![inside, shifted, fill])
            }
            gather @ Move::Gather { .. } => {
                let shifted = self.value(value, &moves.with(axis, gather.shifted(by)));
                let (fill, inside) = (self.value(fill, moves), self.is_inside(axis, by, moves));
                let ty = self.code.registers[shifted.0].ty;
                self.emit(TileOp::Select, ty, vec![inside, shifted, fill])
            }
        }
    }

    /// The tensor that is read at t − by, and what appears where nothing was: loading it needs no choice afterwards. `None` for shifts of other values, and of
    /// tensors that are moved along other axes too.
    fn padded(&self, axis: Axis, value: Value, fill: Value, moves: &Moves) -> Option<(Tensor, Literal)> {
        let node = self.drafts.program.node(value);
        let is_moved_alone =
            moves.along(node.axes) == Moves::default() && node.axes.contains(axis) && !self.holds(axis);
        let Op::Const(fill) = self.drafts.program.node(fill).op else { return None };
        let tensor = match node.op {
            _ if self.drafts.is_borrowed(self.stage, value) => self.memory.temporaries.get(&value),
            Op::Param(k) => self.memory.params[k as usize].as_ref(),
            _ => None,
        };
        Some((tensor.filter(|_| is_moved_alone)?.clone(), fill))
    }

    /// Whether index t − by exists.
    fn is_inside(&mut self, axis: Axis, by: i64, moves: &Moves) -> Reg {
        let (op, bound) = match by {
            0.. => (Binary::Ge, by),
            _ => (Binary::Lt, (self.size(axis) as i64).saturating_add(by)),
        };
        if let Move::Shift(by) = moves.of(axis) {
            let axis = self.position(axis);
            return self.guard(Guard { axis, offset: by.saturating_neg(), is_from: op == Binary::Ge, bound });
        }
        let (index, bound) = (self.index(axis, moves), self.constant(Ty::I64, Literal::Int(bound)));
        self.emit(TileOp::Binary(op), Ty::Bool, vec![index, bound])
    }

    fn guard(&mut self, guard: Guard) -> Reg {
        if let Some(known) = self.guards.get(&guard) {
            return *known;
        }
        let register = self.emit_over(1 << guard.axis, TileOp::Guard(guard), Ty::Bool, vec![]);
        self.guards.insert(guard, register);
        register
    }

    /// The value at the first or last index of an axis.
    fn end(&mut self, own: Value, axis: Axis, value: Value, empty: Value, moves: &Moves, is_last: bool) -> Reg {
        let size = self.size(axis);
        if size == 0 {
            return self.value(empty, moves);
        }
        let index = if is_last { size - 1 } else { 0 };
        if self.captures(own, axis) {
            return self.capture(axis, index, value, empty);
        }
        if !self.holds(axis) {
            return self.value(value, &moves.with(axis, Move::Pin(index)));
        }
        let (value, axis) = (self.value(value, moves), self.position(axis));
        let Register { ty, dims, .. } = self.code.registers[value.0];
        self.emit_over(dims & !(1 << axis), TileOp::Pick { axis, index }, ty, vec![value])
    }

    /// A value at one index of the streamed axis, known when that index has been visited.
    fn capture(&mut self, axis: Axis, index: usize, value: Value, empty: Value) -> Reg {
        let (value, empty) = (self.value(value, &Moves::default()), self.value(empty, &Moves::default()));
        let of = |register: Reg| self.code.registers[register.0].dims;
        let (axis, ty) = (self.position(axis), self.code.registers[value.0].ty);
        let dims = (of(value) | of(empty)) & !(1 << axis);
        self.emit_over(dims, TileOp::Capture { axis, position: index }, ty, vec![value, empty])
    }
}
