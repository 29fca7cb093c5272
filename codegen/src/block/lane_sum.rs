//! The sum over lanes of a warp, of several steps at once.

use crate::build::Builder;
use crate::tile::{Operand, Shuffle};
use oplus_dsl::ir::Binary;

/// The lanes that sum: their number, and how far neighbours are apart in the warp.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// A power of two.
    pub count: u32,
    /// A power of two.
    pub stride: u32,
    /// The lane's position, `i32`.
    pub position: Operand,
    /// Steps that are summed at once, a power of two.
    pub length: u32,
}

impl Lanes {
    /// How often the steps are halved.
    fn halvings(self) -> u32 {
        self.count.trailing_zeros().min(self.length.trailing_zeros())
    }

    /// Steps that a lane ends with.
    pub(crate) fn steps(self) -> u32 {
        self.length >> self.halvings()
    }

    /// The first of those steps, `i32`.
    pub(crate) fn first_step(self, b: &mut Builder) -> Operand {
        let spare = self.count.trailing_zeros() - self.halvings();
        let part = b.binary(Binary::Shr, self.position, spare);
        let part = b.binary(Binary::And, part, (1 << self.halvings()) - 1);
        b.mul(part, self.steps())
    }

    /// Whether the lane is the one that keeps its steps: others have the same.
    pub(crate) fn keeps(self, b: &mut Builder) -> Operand {
        let spare = self.count >> self.halvings();
        let rest = b.binary(Binary::And, self.position, spare as i32 - 1);
        b.eq(rest, 0)
    }

    /// Each lane's steps of the sum over the lanes. At every level a lane gives half of its steps to another lane and
    /// takes that lane's part of the other half; with one step left, both have the sum.
    pub(crate) fn sum(self, b: &mut Builder, steps: &[Operand]) -> Vec<Operand> {
        let (mut steps, mut distance) = (steps.to_vec(), self.count / 2);
        while distance > 0 {
            let step = Operand::i32((distance * self.stride) as i32);
            if steps.len() > 1 {
                let bit = b.binary(Binary::And, self.position, distance);
                let upper = b.ne(bit, 0);
                let (low, high) = steps.split_at(steps.len() / 2);
                let pairs = low.iter().zip(high).map(|(l, h)| (b.select(upper, *h, *l), b.select(upper, *l, *h)));
                let pairs: Vec<_> = pairs.collect();
                steps = pairs.into_iter().map(|(keep, give)| exchanged(b, keep, give, step)).collect();
            } else {
                steps = vec![exchanged(b, steps[0], steps[0], step)];
            }
            distance /= 2;
        }
        steps
    }
}

/// `keep` plus what the lane at the other end of a distance gives.
fn exchanged(b: &mut Builder, keep: Operand, give: Operand, distance: Operand) -> Operand {
    let taken = b.shuffle(Shuffle::Xor, give, distance);
    b.add(keep, taken)
}
