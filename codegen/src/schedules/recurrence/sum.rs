//! Sums over a row.

use oplus_dsl::ir::Binary;

use super::RecurrenceKernel;
use crate::block::lane_sum::Lanes;
use crate::build::{Builder, zero};
use crate::tile::{Operand, Shuffle};

/// Partial sums of a lane that do not wait for one another.
const CHAINS: usize = 4;

impl RecurrenceKernel<'_> {
    /// The sum of products over all places of the row, which all its lanes get.
    pub(super) fn dot(&self, b: &mut Builder, x: &[Operand], y: &[Operand]) -> Operand {
        if self.schedule.padded || self.schedule.ordered {
            let products: Vec<Operand> = x.iter().zip(y).map(|(x, y)| b.mul(*x, *y)).collect();
            return self.total(b, &products);
        }
        let mut chains: Vec<Operand> = vec![];
        for (k, (x, y)) in x.iter().zip(y).enumerate() {
            match chains.get(k % CHAINS).copied() {
                None => chains.push(b.mul(*x, *y)),
                Some(sum) => chains[k % CHAINS] = b.fma(*x, *y, sum),
            }
        }
        self.across(b, chains)
    }

    /// The sum of values over all places of the row, which all its lanes get.
    pub(super) fn total(&self, b: &mut Builder, values: &[Operand]) -> Operand {
        let nothing = zero(b.ty(values[0]));
        let kept: Vec<Operand> =
            values.iter().zip(&self.exists).map(|(x, exists)| b.select(*exists, *x, nothing)).collect();
        if self.schedule.ordered {
            return self.in_order(b, &kept);
        }
        let mut chains: Vec<Operand> = vec![];
        for (k, x) in kept.into_iter().enumerate() {
            match chains.get(k % CHAINS).copied() {
                None => chains.push(x),
                Some(sum) => chains[k % CHAINS] = b.add(sum, x),
            }
        }
        self.across(b, chains)
    }

    /// The sum over lanes of the sums of a lane's numbers.
    fn across(&self, b: &mut Builder, mut numbers: Vec<Operand>) -> Operand {
        while numbers.len() > 1 {
            numbers = numbers.chunks(2).map(|pair| if let [x, y] = *pair { b.add(x, y) } else { pair[0] }).collect();
        }
        let lanes = Lanes { count: self.schedule.lanes, stride: 1, position: self.position, length: 1 };
        lanes.sum(b, &numbers)[0]
    }

    /// The sum from the first place to the last: each lane goes on from the one before it.
    fn in_order(&self, b: &mut Builder, values: &[Operand]) -> Operand {
        let sum = b.var(zero(b.ty(values[0])));
        b.for_(Operand::i32(0), Operand::i32(self.schedule.lanes as i32), Operand::i32(1), |b, lane| {
            let own = values.iter().fold(sum.into(), |sum, x| b.binary(Binary::Add, sum, *x));
            let from = b.add(self.first_lane, lane);
            let next = b.shuffle(Shuffle::Index, own, from);
            b.assign(sum, next);
        });
        sum.into()
    }
}
