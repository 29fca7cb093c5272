//! Sums over the lanes of a warp: of several steps at once, over all lanes, or over the lanes before or behind each.

use crate::build::{Builder, zero};
use crate::target::WARP;
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
    /// The number of times that the steps are halved.
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
        let number = b.binary(Binary::Shr, self.position, spare);
        let number = b.binary(Binary::And, number, (1 << self.halvings()) - 1);
        b.mul(number, self.steps())
    }

    /// Whether the lane keeps its steps: where several lanes end with the same steps, one of them does.
    pub(crate) fn keeps(self, b: &mut Builder) -> Operand {
        let spare = self.count >> self.halvings();
        let rest = b.binary(Binary::And, self.position, spare as i32 - 1);
        b.eq(rest, 0)
    }

    /// Each lane's steps of the sum over the lanes. At every level a lane gives one half of its steps to another lane, and adds
    /// that lane's numbers to the other half; with one step left, both have the sum.
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

/// Combines the numbers of lanes that are so far apart, one distance after the other.
pub(crate) fn over_lanes(b: &mut Builder, op: Binary, own: Operand, apart: &[u32]) -> Operand {
    apart.iter().fold(own, |all, by| {
        let other = b.shuffle(Shuffle::Xor, all, Operand::i32(*by as i32));
        b.binary(op, all, other)
    })
}

/// A lane among its neighbours: the lanes of a warp, or those of one of the equal groups that the warp is divided in.
#[derive(Clone, Copy)]
pub(crate) struct Neighbours {
    /// The lane's place among them, `i32`.
    pub place: Operand,
    /// Their number, a power of two.
    pub count: u32,
}

impl Neighbours {
    /// A lane among all of its warp.
    pub(crate) fn in_warp(lane: Operand) -> Neighbours {
        Neighbours { place: lane, count: WARP }
    }
}

/// The sum of the neighbours before a lane, or of those behind it.
pub(crate) fn sum_beside(b: &mut Builder, lane: Neighbours, own: Operand, side: Side) -> Operand {
    let Neighbours { place, count } = lane;
    let mut sum = own;
    let mut by = 1;
    while by < count {
        let other = b.shuffle(side.shuffle(), sum, Operand::i32(by as i32));
        let inside = match side {
            Side::Before => b.ge(place, by),
            Side::Behind => b.lt(place, count - by),
        };
        let both = b.add(sum, other);
        sum = b.select(inside, both, sum);
        by *= 2;
    }
    let beside = b.shuffle(side.shuffle(), sum, Operand::i32(1));
    let nothing = zero(b.ty(own));
    match side {
        Side::Before => {
            let is_first = b.eq(place, 0);
            b.select(is_first, nothing, beside)
        }
        Side::Behind => {
            let has_later = b.lt(place, count - 1);
            b.select(has_later, beside, nothing)
        }
    }
}

/// The lanes on one side of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Lanes of smaller numbers.
    Before,
    /// Lanes of larger ones.
    Behind,
}

impl Side {
    fn shuffle(self) -> Shuffle {
        if self == Side::Before { Shuffle::Up } else { Shuffle::Down }
    }
}

/// The sum of `keep` and of the number that the lane at the other end of a distance gives.
fn exchanged(b: &mut Builder, keep: Operand, give: Operand, distance: Operand) -> Operand {
    let taken = b.shuffle(Shuffle::Xor, give, distance);
    b.add(keep, taken)
}
