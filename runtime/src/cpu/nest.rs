//! The loops of a map with one to three operands.

use super::loops::Loops;

/// Loops over the result of a map and its operands.
pub(super) enum Nest {
    /// One operand; of a map without any, the result twice.
    One(Loops<2>),
    Two(Loops<3>),
    Three(Loops<4>),
}

impl Nest {
    /// The loops over some axes, with the sizes of all; the strides are those of the result and of each operand.
    pub(super) fn new(
        sizes: &[usize],
        axes: impl Iterator<Item = usize>,
        own: &[isize],
        operands: &[&[isize]],
    ) -> Nest {
        match *operands {
            [a, b, c] => Nest::Three(loops(sizes, axes, [own, a, b, c])),
            [a, b] => Nest::Two(loops(sizes, axes, [own, a, b])),
            [a] => Nest::One(loops(sizes, axes, [own, a])),
            _ => Nest::One(loops(sizes, axes, [own, own])),
        }
    }
}

fn loops<const N: usize>(sizes: &[usize], axes: impl Iterator<Item = usize>, strides: [&[isize]; N]) -> Loops<N> {
    Loops::new(axes.map(|axis| (sizes[axis], strides.map(|strides| strides[axis])))).unit()
}
