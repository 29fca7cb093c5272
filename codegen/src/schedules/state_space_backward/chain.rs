//! The recurrence of the cotangents, step by step back.

use super::StateSpaceBackwardKernel;
use super::subtile::{Eight, LaneRows};
use crate::block::state_step::{Evaluator, StateStep};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::{Binary, Op};

/// The contribution that the cotangent of a step takes from the step behind it.
#[derive(Clone, Copy)]
pub(super) enum Chain {
    /// The decay and the cotangent there: their product is rounded with the sum.
    Behind(Operand, Operand),
    /// The product of decay and cotangent.
    Carried(Operand),
}

impl Chain {
    pub(super) fn carried(self, b: &mut Builder) -> Operand {
        match self {
            Chain::Behind(decay, cotangent) => b.mul(decay, cotangent),
            Chain::Carried(product) => product,
        }
    }
}

impl StateSpaceBackwardKernel<'_> {
    /// The contribution to the cotangent of the step before; unchanged where the step does not exist.
    pub(super) fn step_back(
        &self,
        b: &mut Builder,
        lane_rows: &mut LaneRows,
        r: usize,
        at: StateStep,
        behind: Chain,
    ) -> Chain {
        let (evaluator, eight) = (&mut lane_rows.evaluators[r], &mut lane_rows.eights[r]);
        let cotangent = self.cotangent(b, evaluator, eight, at, behind);
        eight.cotangents.insert(at, cotangent);
        let decay = self.decay(b, lane_rows, r, at);
        if !self.masks.steps {
            return Chain::Behind(decay, cotangent);
        }
        let product = b.mul(decay, cotangent);
        let behind = behind.carried(b);
        Chain::Carried(b.select(lane_rows.exists[at.step as usize], product, behind))
    }

    pub(super) fn decay(&self, b: &mut Builder, lane_rows: &mut LaneRows, r: usize, at: StateStep) -> Operand {
        lane_rows.evaluators[r].value(b, &mut lane_rows.eights[r], self.form.decay, at)
    }

    /// gain + decay·cotangent of the step behind.
    fn cotangent(
        &self,
        b: &mut Builder,
        evaluator: &mut Evaluator,
        eight: &mut Eight,
        at: StateStep,
        chain: Chain,
    ) -> Operand {
        let gain = self.form.gain;
        match (chain, &self.form.program.node(gain).op) {
            (Chain::Behind(decay, cotangent), _) => {
                let gain = evaluator.value(b, eight, gain, at);
                b.fma(decay, cotangent, gain)
            }
            (Chain::Carried(carried), Op::Binary(Binary::Mul, x, y)) => {
                let [x, y] = [*x, *y].map(|v| evaluator.value(b, eight, v, at));
                b.fma(x, y, carried)
            }
            (Chain::Carried(carried), _) => {
                let gain = evaluator.value(b, eight, gain, at);
                b.add(gain, carried)
            }
        }
    }
}
