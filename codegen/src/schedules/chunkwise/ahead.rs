//! Reads of rates a chunk ahead: elements of which decays and gains are computed come from memory while the chunk before is handed over.
//!
//! A warp that waited for them in every chunk would be what blocks wait for that only find the ends of segments.

use super::ChunkwiseKernel;
use super::decay::Rates;
use super::segments::Iterations;
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::{Binary, Op, Value};
use oplus_dsl::walk::any;

/// The elements that rates of the next chunk are computed of, in registers.
pub(super) struct ReadAhead {
    params: Vec<ParamAhead>,
}

/// A parameter that varies along the time.
struct ParamAhead {
    node: Value,
    /// Its elements at the lane's times.
    regs: Vec<Reg>,
}

impl ChunkwiseKernel<'_> {
    /// Reads what rates of all chunks share, and the elements of the first chunk.
    pub(super) fn read_first(&self, b: &mut Builder, values: &mut Values, iterations: Iterations) -> ReadAhead {
        let nodes = self.rate_params();
        let varies = |node: &Value| self.stage.program.node(*node).axes.contains(self.form.time);
        let (varying, constant): (Vec<Value>, Vec<Value>) = nodes.into_iter().partition(varies);
        for node in constant {
            values.value(b, node, Coordinates::default());
        }
        let first = self.first_time(b, Operand::i32(0), iterations);
        let read = self.elements(b, values, &varying, first);
        let params = varying.into_iter().zip(read).map(|(node, own)| ParamAhead { node, regs: b.vars(&own) });
        ReadAhead { params: params.collect() }
    }

    /// The elements of the chunk after an iteration, or of the last one again.
    pub(super) fn read_next(
        &self,
        b: &mut Builder,
        values: &Values,
        ahead: &ReadAhead,
        iteration: Operand,
        iterations: Iterations,
    ) -> Vec<Vec<Operand>> {
        let (next, last) = (b.add(iteration, 1), b.sub(iterations.count, 1));
        let known = b.binary(Binary::Min, next, last);
        let first = self.first_time(b, known, iterations);
        let nodes: Vec<Value> = ahead.params.iter().map(|param| param.node).collect();
        self.elements(b, values, &nodes, first)
    }

    /// The rates of a chunk from its first time on, of the elements that have been read ahead.
    pub(super) fn rates_ahead(&self, b: &mut Builder, values: &Values, ahead: &ReadAhead, first: Operand) -> Rates {
        let mut values = values.clone();
        for param in &ahead.params {
            for (k, reg) in (0..).zip(&param.regs) {
                values.set(param.node, at_row(k), (*reg).into());
            }
        }
        self.rates(b, &values, first)
    }

    /// The parameters that logarithms and gains are computed of.
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

impl ReadAhead {
    /// Replaces the elements by those of the next chunk.
    pub(super) fn assign(&self, b: &mut Builder, next: &[Vec<Operand>]) {
        let pairs = self.params.iter().zip(next).flat_map(|(param, next)| param.regs.iter().zip(next));
        pairs.for_each(|(reg, element)| b.assign(*reg, *element));
    }
}

fn at_row(number: u32) -> Coordinates {
    Coordinates { row: Some(number), ..Coordinates::default() }
}
