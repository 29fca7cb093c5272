//! Outputs that have time: maps of the sums over states, of tile values and of parameters, taken away by the copy warps.

use super::anchors::Offsets;
use super::copy::{Copier, load_steps};
use super::global::{Global, RowState};
use super::layout::Layout;
use super::pieces::{Piece, Shape};
use super::{StateSpaceKernel, Time};
use crate::abi::Tensor;
use crate::block::ring::RingStage;
use crate::block::state_step::{Evaluator, Source, StateStep};
use crate::build::Builder;
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::{Op, Value};
use std::collections::{HashMap, HashSet};

impl StateSpaceKernel<'_> {
    /// The outputs that have time, of a kernel that has any.
    pub(super) fn body_outputs(&self) -> impl Iterator<Item = usize> {
        let outputs = if self.schedule.ends { 0 } else { self.stage.program.outputs.len() };
        (0..outputs).filter(|k| !self.stage.is_final(*k))
    }

    /// The shape that cuts an output into pieces.
    pub(crate) fn output_shape(&self, k: usize) -> Shape {
        let output = &self.stage.program.outputs[k];
        let across = self.schedule.vector == 1 && output.axes.last() != Some(&self.scan.axis);
        let bytes = output.elem.bytes().unwrap_or(16) as u32;
        let width = self.schedule.vector.min(16 / bytes);
        Shape { height: self.block_rows, steps: self.schedule.steps, width, across }
    }

    /// Waits for a tile to have been walked, and writes its outputs. Loads from global memory are on their way
    /// meanwhile.
    pub(super) fn drain(&self, b: &mut Builder, drained: RingStage, time: &Time, copier: Copier) {
        let stage = drained.index;
        let Copier { thread, anchors, constants } = copier;
        let mut early = vec![];
        for k in self.body_outputs() {
            let shape = self.output_shape(k);
            let pieces = self.few_pieces(b, shape, thread);
            early.push(pieces.map(|pieces| {
                let tensors =
                    [Tensor::Output(k as u32)].into_iter().chain(self.read_by_output(k).into_iter().map(Tensor::Param));
                let tensors: Vec<Tensor> = tensors.collect();
                let mut offsets = Offsets::of(anchors, &tensors);
                let source = |(i, p): (usize, &Piece)| {
                    let mut source = self.drain_source(b, stage, time, p, shape.width);
                    source.global.known = offsets.at(b, self, time, p);
                    source.global.take_up(constants.at(k, i));
                    source
                };
                let mut sources: Vec<Drain> = pieces.iter().enumerate().map(source).collect();
                sources.iter_mut().for_each(|source| source.preload(b, k));
                (pieces, sources)
            }));
        }
        b.wait(self.frame.done, drained);
        b.push(Stmt::SyncWarp);
        for (k, early) in self.body_outputs().zip(early) {
            let shape = self.output_shape(k);
            match early {
                Some((pieces, sources)) => {
                    for (piece, source) in pieces.iter().zip(sources) {
                        let walked = self.is_walked(b, piece, time);
                        b.if_(walked, |b| self.write(b, k, shape, source));
                    }
                }
                None => self.each_piece(b, shape, 1, thread, |b, pieces| {
                    for piece in pieces {
                        let walked = self.is_walked(b, piece, time);
                        b.if_(walked, |b| {
                            let source = self.drain_source(b, stage, time, piece, shape.width);
                            self.write(b, k, shape, source);
                        });
                    }
                }),
            }
        }
    }

    /// The parameters that an output's values are read from in global memory.
    pub(super) fn read_by_output(&self, output: usize) -> Vec<u32> {
        let program = &self.stage.program;
        let shared = |v: &Value| self.values.tile(*v).is_some_and(|i| !self.values.tiles[i].states);
        let (mut params, mut stack) = (vec![], vec![program.outputs[output].value]);
        let mut seen = HashSet::new();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            match &program.node(value).op {
                Op::Param(param) if !shared(&value) => params.push(*param),
                op if !shared(&value) && !matches!(op, Op::Field(..)) => stack.extend(op.operands()),
                _ => {}
            }
        }
        params.sort_unstable();
        params.dedup();
        params
    }

    /// Whether a piece holds sums.
    fn is_walked(&self, b: &mut Builder, piece: &Piece, time: &Time) -> Operand {
        let exists = if self.is_exact() { b.lt(piece.column, time.steps) } else { Operand::bool(true) };
        b.and(piece.held, exists)
    }

    fn drain_source(&self, b: &mut Builder, stage: Operand, time: &Time, piece: &Piece, width: u32) -> Drain<'_, '_> {
        let global = Global::at(b, self, RowState::first_of(piece.row), time, piece, width);
        Drain { kernel: self, global, stage, piece: *piece, loaded: HashMap::new() }
    }

    /// Writes an output's piece.
    fn write(&self, b: &mut Builder, k: usize, shape: Shape, mut source: Drain) {
        let (tensor, value) = (Tensor::Output(k as u32), self.stage.program.outputs[k].value);
        let mut evaluator = Evaluator::new(&self.stage.program, self.scan.axis, self.values.state);
        let values: Vec<Operand> =
            (0..shape.width).map(|step| evaluator.value(b, &mut source, value, StateStep { state: 0, step })).collect();
        let (offset, exists) = source.global.offset(b, tensor, 0);
        b.store(self.args.memory(tensor), offset, &values, Some(exists));
    }
}

/// The source of an output's values at a piece.
struct Drain<'k, 's> {
    kernel: &'k StateSpaceKernel<'s>,
    global: Global<'k, 's>,
    stage: Operand,
    piece: Piece,
    /// Chunks from shared memory, by array.
    loaded: HashMap<Value, Vec<Operand>>,
}

impl Drain<'_, '_> {
    /// Loads what an output needs from global memory.
    fn preload(&mut self, b: &mut Builder, output: usize) {
        self.global.preload(b, &self.kernel.read_by_output(output));
    }

    /// The steps of the piece in a tile or a sum.
    fn shared(&mut self, b: &mut Builder, value: Value, array: Memory, layout: Layout, step: u32) -> Operand {
        if !self.loaded.contains_key(&value) {
            let kernel = self.kernel;
            let row = if layout.height > 1 { self.piece.row } else { Operand::i32(0) };
            let at = kernel.element(b, layout, self.stage, row, self.piece.column);
            let steps = load_steps(b, array, at, self.global.width);
            self.loaded.insert(value, steps);
        }
        self.loaded[&value][step as usize]
    }
}

impl Source for Drain<'_, '_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        let kernel = self.kernel;
        if let Some(sum) = kernel.values.sum(&kernel.stage.program, value) {
            let layout = kernel.layouts.row_tile();
            return Some(self.shared(b, value, Memory::Shared(kernel.sums[sum]), layout, at.step));
        }
        if let Some(i) = kernel.values.tile(value).filter(|i| !kernel.values.tiles[*i].states) {
            let layout = kernel.layouts.tile(&kernel.values.tiles[i]);
            return Some(self.shared(b, value, Memory::Shared(kernel.tiles[i]), layout, at.step));
        }
        self.global.leaf(b, value, at)
    }
}
