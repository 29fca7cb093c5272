//! Elements of one type of 16 bits in arrays of another.

use super::{Y, builder, index, run, thread};
use crate::block::bits::in_bits_of;
use crate::block::layout::Tile;
use crate::target::WARP;
use crate::tile::Memory;
use oplus_dsl::{Elem, Ty};

/// Every element of `f16` that is a number, through an array of `bf16` and back.
#[test]
fn elements_of_f16_lie_in_arrays_of_bf16() {
    let mut b = builder(WARP, Elem::F16);
    let tile = Tile::bare(&mut b, "tile", Elem::Bf16, 16, 16);
    let own = thread(&mut b);
    let (at, x) = (b.mul(own, 2), index(&mut b, own, 2, 0));
    let two = b.load(super::X, x, 2, None, crate::build::zero(Ty::F32));
    let bits = in_bits_of(&mut b, Elem::F16, Elem::Bf16, [two[0], two[1]]);
    b.store(Memory::Shared(tile.array), at, &bits, None);
    let bits = b.load(Memory::Shared(tile.array), at, 2, None, crate::build::zero(Ty::F32));
    let two = in_bits_of(&mut b, Elem::Bf16, Elem::F16, [bits[0], bits[1]]);
    b.store(Y, x, &two, None);
    let kernel = b.finish();
    let patterns: Vec<u16> = (0..=0xffff).filter(|bits| bits & 0x7c00 != 0x7c00 || bits & 0x3ff == 0).collect();
    for some in patterns.chunks(2 * WARP as usize).step_by(16) {
        let x: Vec<f64> = some.iter().map(|bits| half::f16::from_bits(*bits).to_f64()).collect();
        let x = [x, vec![0.0; 2 * WARP as usize - some.len()]].concat();
        assert_eq!(run(&kernel, &x, x.len()), x);
    }
}
