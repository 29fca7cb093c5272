//! The decays and gains of chunks, as a warp that only copies writes them. It reads what they are computed from one chunk ahead.
//!
//! The elements of the next chunk come from memory while those of this one are evaluated. A warp that waited for them in every chunk would delay
//! blocks that only find the ends of segments: these have little else to do. There elements are read before the copies of a chunk begin, and
//! awaited after its decays have been handed over.

use super::ChunkwiseKernel;
use super::decay::Rates;
use super::segments::Iterations;
use crate::block::pair::{Coordinates, Values};
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::{Binary, Op, Value};
use oplus_dsl::walk::any;

/// What a warp that writes decays and gains keeps from chunk to chunk.
pub(super) struct RatesAhead<'v> {
    /// An evaluator that knows what all chunks share.
    values: Values<'v>,
    /// The parameters that vary along the time.
    params: Vec<ParamAhead>,
    /// The sum L of [factors](super::factored), where it is followed.
    base: Option<Reg>,
}

/// A parameter whose elements of the next chunk are in registers.
struct ParamAhead {
    node: Value,
    /// Its elements at the lane's times.
    regs: Vec<Reg>,
}

/// The elements of the next chunk, of each parameter.
pub(super) struct NextElements(Vec<Vec<Operand>>);

impl ChunkwiseKernel<'_> {
    /// Reads what the decays and gains of all chunks share, and the elements of the first chunk.
    pub(super) fn read_first(&self, b: &mut Builder, iterations: Iterations) -> RatesAhead<'_> {
        let mut values = Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone());
        let base = self.base(b);
        let nodes = self.rate_params();
        let varies = |node: &Value| self.stage.program.node(*node).axes.contains(self.form.time);
        let (varying, constant): (Vec<Value>, Vec<Value>) = nodes.into_iter().partition(varies);
        for node in constant {
            values.value(b, node, Coordinates::default());
        }
        let first = self.first_time(b, Operand::i32(0), iterations);
        let read = self.elements(b, &values, &varying, first);
        let params = varying.into_iter().zip(read).map(|(node, own)| ParamAhead { node, regs: b.vars(&own) });
        let params = params.collect();
        RatesAhead { values, params, base }
    }

    /// Reads the elements of the next chunk before the copies of an iteration begin, in walks that only find the ends of segments.
    pub(super) fn read_early(
        &self,
        b: &mut Builder,
        ahead: &RatesAhead,
        iteration: Operand,
        iterations: Iterations,
    ) -> Option<NextElements> {
        self.schedule.ends.then(|| self.read_next(b, ahead, iteration, iterations))
    }

    /// Writes the decays and gains of an iteration, whose chunk begins at a time. Elements of the next one that were not [read
    /// early](Self::read_early) are read meanwhile.
    pub(super) fn write_rates(
        &self,
        b: &mut Builder,
        ahead: &RatesAhead,
        iteration: Operand,
        first: Operand,
        iterations: Iterations,
    ) {
        let Some(handover) = self.handover else { return };
        let next = (!self.schedule.ends).then(|| self.read_next(b, ahead, iteration, iterations));
        let rates = self.rates_ahead(b, ahead, first);
        match self.factored {
            Some(_) => {
                let stage = Ring::of(self.schedule.stages).stage(b, iteration);
                self.store_factors(b, handover, iteration, stage, &rates, ahead.base);
            }
            None => self.store_all_rates(b, handover, iteration, &rates),
        }
        ahead.take(b, next.as_ref());
    }

    /// The elements of the chunk after an iteration, or of the last one again.
    fn read_next(
        &self,
        b: &mut Builder,
        ahead: &RatesAhead,
        iteration: Operand,
        iterations: Iterations,
    ) -> NextElements {
        let (next, last) = (b.add(iteration, 1), b.sub(iterations.count, 1));
        let known = b.binary(Binary::Min, next, last);
        let first = self.first_time(b, known, iterations);
        let nodes: Vec<Value> = ahead.params.iter().map(|param| param.node).collect();
        NextElements(self.elements(b, &ahead.values, &nodes, first))
    }

    /// The rates of a chunk from its first time on, of the elements that have been read ahead.
    fn rates_ahead(&self, b: &mut Builder, ahead: &RatesAhead, first: Operand) -> Rates {
        let mut values = ahead.values.clone();
        for param in &ahead.params {
            for (k, reg) in (0..).zip(&param.regs) {
                values.set(param.node, at_row(k), (*reg).into());
            }
        }
        self.rates(b, &values, first)
    }

    /// The parameters that logarithms and gains are computed from.
    fn rate_params(&self) -> Vec<Value> {
        let program = &self.stage.program;
        let of_decay = self.form.decay.iter().flat_map(|decay| [Some(decay.log), decay.reset]).flatten();
        let roots: Vec<Value> = of_decay.chain(self.form.gain.iter().copied()).collect();
        let is_read = |node: &Value| {
            matches!(program.node(*node).op, Op::Param(_))
                && roots.iter().any(|root| any(program, *root, |value| value == *node))
        };
        (0..program.nodes.len() as u32).map(Value).filter(is_read).collect()
    }

    /// The elements of some parameters at the lane's times of a chunk from its first time on.
    fn elements(&self, b: &mut Builder, values: &Values, nodes: &[Value], first: Operand) -> Vec<Vec<Operand>> {
        let mut values = values.clone();
        let places = self.places(b, first);
        (0..).zip(&places).for_each(|(k, place)| values.set_row(k, *place));
        let of_node = |node: &Value| (0..places.len() as u32).map(|k| values.value(b, *node, at_row(k))).collect();
        nodes.iter().map(of_node).collect()
    }
}

impl RatesAhead<'_> {
    /// Replaces the elements by those of the next chunk, if they are given.
    pub(super) fn take(&self, b: &mut Builder, next: Option<&NextElements>) {
        let Some(NextElements(next)) = next else { return };
        let pairs = self.params.iter().zip(next).flat_map(|(param, next)| param.regs.iter().zip(next));
        pairs.for_each(|(reg, element)| b.assign(*reg, *element));
    }
}

fn at_row(number: u32) -> Coordinates {
    Coordinates { row: Some(number), ..Coordinates::default() }
}
