//! Values from global memory, at one row and, where they depend on them, at states and steps.

use super::pieces::Piece;
use super::{StateSpaceKernel, Time};
use crate::abi::Tensor;
use crate::block::args::index_of;
use crate::block::state_step::{Source, StateStep};
use crate::build::{Builder, zero};
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Op, Value};
use std::collections::HashMap;

/// The steps at which values are taken: all exist, or none.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// The first one, `i64`.
    pub first: Operand,
    pub exists: Operand,
}

/// A row of the block, and the first one of the states that values are taken at. Both `i32`.
#[derive(Clone, Copy)]
pub(crate) struct RowState {
    pub row: Operand,
    pub state: Operand,
}

impl RowState {
    /// A row from its first state on.
    pub(crate) fn first_of(row: Operand) -> RowState {
        RowState { row, state: Operand::i32(0) }
    }
}

/// The source of values at a row, from state `state` and step `time` on.
#[derive(Clone)]
pub(crate) struct Global<'k, 's> {
    pub(super) kernel: &'k StateSpaceKernel<'s>,
    /// Row of the block, `i32`.
    pub(crate) row: Operand,
    /// The state of index 0, `i32`.
    pub(crate) state: Operand,
    /// The step of index 0, `i64`, and whether it exists.
    pub(crate) steps: Steps,
    /// The number of steps; all of them exist, or none.
    pub(super) width: u32,
    /// Whether the row and the steps are known to exist.
    is_certain: bool,
    /// Offsets that need not be computed.
    pub(crate) known: HashMap<Tensor, Operand>,
    loaded: Elements,
}

/// Elements by parameter and state.
pub(crate) type Elements = HashMap<(u32, u32), Vec<Operand>>;

impl<'k, 's> Global<'k, 's> {
    /// Values at a row and a state, without time.
    pub(crate) fn timeless(kernel: &'k StateSpaceKernel<'s>, row: Operand, state: Operand) -> Self {
        let steps = Steps { first: Operand::i64(0), exists: Operand::bool(true) };
        let (width, is_certain) = (1, false);
        Global { kernel, row, state, steps, width, is_certain, known: HashMap::new(), loaded: HashMap::new() }
    }

    /// Values of a row, from a state on, at the `width` steps of a piece of a tile.
    pub(crate) fn at(
        b: &mut Builder,
        kernel: &'k StateSpaceKernel<'s>,
        from: RowState,
        time: &Time,
        piece: &Piece,
        width: u32,
    ) -> Self {
        let RowState { row, state } = from;
        let column = b.convert(Ty::I64, piece.column);
        let is_certain = time.is_whole && piece.held == Operand::bool(true);
        let first = b.add(time.first, column);
        let exists = if is_certain { Operand::bool(true) } else { b.lt(piece.column, time.steps) };
        let steps = Steps { first, exists };
        Global { kernel, row, state, steps, width, is_certain, known: HashMap::new(), loaded: HashMap::new() }
    }

    /// Takes up elements that have been loaded before.
    pub(super) fn take_up(&mut self, elements: Option<&Elements>) {
        self.loaded.extend(elements.cloned().unwrap_or_default());
    }

    pub(super) fn elements_loaded(self) -> Elements {
        self.loaded
    }

    /// Loads parameters at the first state, so that the loads are in flight at once.
    pub(super) fn preload(&mut self, b: &mut Builder, params: &[u32]) {
        params.iter().for_each(|param| _ = self.load(b, *param, StateStep::default()));
    }

    /// A parameter's elements at a state and all steps.
    fn load(&mut self, b: &mut Builder, param: u32, at: StateStep) -> Operand {
        let kernel = self.kernel;
        let timed = kernel.stage.program.params[param as usize].axes.contains(&kernel.scan.axis);
        let key = (param, at.state);
        if !self.loaded.contains_key(&key) {
            let elements = self.elements(b, param, at.state, if timed { self.width } else { 1 });
            self.loaded.insert(key, elements);
        }
        self.loaded[&key][if timed { at.step as usize } else { 0 }]
    }

    fn elements(&self, b: &mut Builder, param: u32, state: u32, width: u32) -> Vec<Operand> {
        let (kernel, tensor) = (self.kernel, Tensor::Param(param));
        let (offset, exists) = self.offset(b, tensor, state);
        let memory = kernel.args.memory(tensor);
        let elem = b.elem(memory);
        let access = width.min(16 / elem.bytes().unwrap_or(16) as u32);
        let mut elements = vec![];
        for number in 0..width / access {
            let at = b.add(offset, number * access);
            elements.extend(b.load(memory, at, access, Some(exists), zero(elem.value())));
        }
        elements
    }

    /// The offset of a tensor's element at a state and the first step, and whether it exists.
    pub(crate) fn offset(&self, b: &mut Builder, tensor: Tensor, state: u32) -> (Operand, Operand) {
        let kernel = self.kernel;
        let axes = crate::abi::axes(kernel.stage, tensor).to_vec();
        let (mut indices, mut exists) = (kernel.frame.block.outer.clone(), Operand::bool(true));
        if let Some(axis) = kernel.values.row.filter(|a| axes.contains(a)) {
            indices.push((axis, self.row_index(b)));
            let inside = if self.is_certain { Operand::bool(true) } else { b.lt(self.row, kernel.frame.block.rows) };
            exists = b.and(exists, inside);
        }
        if kernel.values.row.is_none() {
            // The block has one row; the lanes of other rows must not write.
            exists = b.eq(self.row, 0);
        }
        if axes.contains(&kernel.values.state) {
            let own = b.add(self.state, state);
            indices.push((kernel.values.state, b.convert(Ty::I64, own)));
            let is_there = self.is_certain && !kernel.schedule.padded;
            let inside = if is_there { Operand::bool(true) } else { b.lt(own, kernel.frame.state_count) };
            exists = b.and(exists, inside);
        }
        if axes.contains(&kernel.scan.axis) {
            indices.push((kernel.scan.axis, self.steps.first));
            exists = b.and(exists, self.steps.exists);
        }
        let known = self.known.get(&tensor).copied();
        (known.unwrap_or_else(|| kernel.args.offset(b, tensor, &indices)), exists)
    }

    fn row_index(&self, b: &mut Builder) -> Operand {
        let row = b.convert(Ty::I64, self.row);
        b.add(self.kernel.frame.block.first_row, row)
    }

    fn index(&self, b: &mut Builder, axis: Axis, at: StateStep) -> Operand {
        let kernel = self.kernel;
        if axis == kernel.scan.axis {
            return b.add(self.steps.first, at.step);
        }
        if axis == kernel.values.state {
            let own = b.add(self.state, at.state);
            return b.convert(Ty::I64, own);
        }
        if Some(axis) == kernel.values.row { self.row_index(b) } else { index_of(&kernel.frame.block.outer, axis) }
    }
}

impl Source for Global<'_, '_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        match self.kernel.stage.program.node(value).op {
            Op::Param(param) => Some(self.load(b, param, at)),
            Op::Index(axis) => Some(self.index(b, axis, at)),
            Op::Size(axis) => Some(self.kernel.args.size(axis)),
            _ => None,
        }
    }
}
