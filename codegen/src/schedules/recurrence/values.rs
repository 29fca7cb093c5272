//! Values of a row at a step.

use oplus_dsl::ir::{Axis, Binary, Node, Op, Value};

use super::RecurrenceKernel;
use super::load::Slot;
use super::place::Place;
use crate::block::evaluate::{Emitted, Evaluate, evaluate};
use crate::build::Builder;
use crate::tile::Operand;

/// The values emitted so far.
#[derive(Clone)]
pub(super) struct Values<'k, 's> {
    kernel: &'k RecurrenceKernel<'s>,
    emitted: Emitted<Place>,
    /// The index along time, `i64`; 0 where nothing that varies along time is asked for.
    time: Operand,
    /// The elements that were loaded for the step.
    slot: Option<&'k Slot>,
    /// The states before and after the step.
    pub(super) before: Vec<Operand>,
    pub(super) after: Vec<Operand>,
    /// The index along the second axis of a matrix.
    other: Option<(Axis, Operand)>,
}

impl<'k, 's> Values<'k, 's> {
    /// Nothing is emitted, and no step is at hand.
    pub(super) fn without_time(kernel: &'k RecurrenceKernel<'s>) -> Values<'k, 's> {
        let (emitted, time) = (Emitted::new(), Operand::i64(0));
        Values { kernel, emitted, time, slot: None, before: vec![], after: vec![], other: None }
    }

    /// The values at a step, whose parameters were loaded.
    pub(super) fn at(&self, b: &mut Builder, step: Operand, slot: &'k Slot) -> Values<'k, 's> {
        let time = self.kernel.time(b, step);
        Values { time, slot: Some(slot), ..self.clone() }
    }

    /// Values of the step at an index of the second axis of a matrix.
    pub(super) fn at_other(&self, axis: Axis, index: Operand) -> Values<'k, 's> {
        Values { emitted: Emitted::new(), other: Some((axis, index)), ..self.clone() }
    }

    /// The value at one of the lane's places.
    pub(super) fn of_place(&mut self, b: &mut Builder, value: Value, state: u32) -> Operand {
        evaluate(self, b, value, Place { state, offset: 0 })
    }

    /// The value at all of the lane's places.
    pub(super) fn of_places(&mut self, b: &mut Builder, value: Value) -> Vec<Operand> {
        self.kernel.places().map(|k| self.of_place(b, value, k)).collect()
    }

    /// Makes a sum over the row known.
    pub(super) fn know(&mut self, value: Value, sum: Operand) {
        self.remember(value, Place::default(), sum);
    }

    /// The index along time, `i64`.
    pub(super) fn time(&self) -> Operand {
        self.time
    }

    fn param(&self, b: &mut Builder, param: u32, at: Place) -> Operand {
        let loaded = self.slot.and_then(|slot| slot.get(param, at));
        loaded.unwrap_or_else(|| self.kernel.load_one(b, param, at, self.time, self.other))
    }

    fn index(&self, b: &mut Builder, axis: Axis, at: Place) -> Operand {
        let scan = self.kernel.scan.scan;
        if axis == scan.axis {
            return b.add(self.time, Operand::i64(at.offset));
        }
        if axis == scan.along {
            return b.add(self.kernel.first, Operand::i64(i64::from(at.state)));
        }
        let known = self.other.iter().chain(&self.kernel.row).find(|(own, _)| *own == axis);
        known.map_or(Operand::i64(0), |(_, index)| *index)
    }

    /// The value so many indices later along time where there is one, else the fill.
    fn shifted(&mut self, b: &mut Builder, value: Value, fill: Value, at: Place, by: i64) -> Operand {
        let there = Place { offset: at.offset - by, ..at };
        let index = b.add(self.time, Operand::i64(there.offset));
        let (above, below) = (b.ge(index, Operand::i64(0)), b.lt(index, self.kernel.length()));
        let inside = b.and(above, below);
        let (value, fill) = (evaluate(self, b, value, there), evaluate(self, b, fill, at));
        b.select(inside, value, fill)
    }
}

impl Evaluate for Values<'_, '_> {
    type Place = Place;

    fn node(&self, value: Value) -> &Node {
        self.kernel.stage.program.node(value)
    }

    fn own(&self, value: Value, at: Place) -> Place {
        let axes = self.node(value).axes;
        let scan = self.kernel.scan.scan;
        Place {
            state: if axes.contains(scan.along) { at.state } else { 0 },
            offset: if axes.contains(scan.axis) { at.offset } else { 0 },
        }
    }

    fn leaf(&mut self, b: &mut Builder, value: Value, own: Place) -> Option<Operand> {
        match self.node(value).op {
            Op::Param(param) => Some(self.param(b, param, own)),
            Op::Index(axis) => Some(self.index(b, axis, own)),
            Op::Size(axis) => Some(self.kernel.args.size(axis)),
            Op::Shift { by, value, fill, .. } => Some(self.shifted(b, value, fill, own, by)),
            Op::MatrixScan(ref scan) if scan.exclusive => Some(self.before[own.state as usize]),
            Op::MatrixScan(_) | Op::Last { .. } | Op::First { .. } => Some(self.after[own.state as usize]),
            _ => None,
        }
    }

    fn emitted(&mut self) -> &mut Emitted<Place> {
        &mut self.emitted
    }
}

/// Whether a value is a product, and of what.
pub(super) fn product(kernel: &RecurrenceKernel<'_>, value: Value) -> Option<(Value, Value)> {
    match kernel.stage.program.node(value).op {
        Op::Binary(Binary::Mul, x, y) => Some((x, y)),
        _ => None,
    }
}
