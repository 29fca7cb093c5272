//! Elements of one type of 16 bits in arrays of another.

use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Elem;

/// Numbers that have, as elements of the type `to`, the bits that two numbers have as elements of the type `from`, both of 16 bits: so
/// elements of one type lie in an array of the other.
pub(crate) fn in_bits_of(b: &mut Builder, from: Elem, to: Elem, two: [Operand; 2]) -> [Operand; 2] {
    if from == to {
        return two;
    }
    let bits = b.pack(from, two[0], two[1]);
    b.unpack(to, bits)
}
