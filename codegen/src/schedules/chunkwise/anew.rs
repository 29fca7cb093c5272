//! Rematerialised numbers: computed or read again where they are needed, instead of being kept in registers.
//!
//! The compiler computes equal numbers once: indices that are needed before a walk and after it would stay in registers all
//! the while. A number that is read from shared memory, or to which a 0 from there is added, is another number to the compiler.

use crate::build::Builder;
use crate::tile::{Memory, Operand, SharedId};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

/// An array in shared memory, `i64`, that holds a 0 and the numbers to be rematerialised.
#[derive(Clone, Copy)]
pub(crate) struct Anew(SharedId);

impl Anew {
    /// Declares the array with room for `numbers` beside the 0.
    pub(crate) fn declare(b: &mut Builder, numbers: usize) -> Anew {
        Anew(b.shared_values("anew", Ty::I64, 1 + numbers as u32))
    }

    /// Writes the numbers, by one thread; a barrier must follow.
    pub(crate) fn store(self, b: &mut Builder, numbers: &[Operand]) {
        for (k, number) in (0..).zip([Operand::i64(0)].iter().chain(numbers)) {
            b.store(Memory::Shared(self.0), Operand::i32(k), &[*number], None);
        }
    }

    /// Reads the number of an index.
    pub(crate) fn read(self, b: &mut Builder, place: usize) -> Operand {
        b.load1(Memory::Shared(self.0), Operand::i32(1 + place as i32))
    }

    /// Reads the indices along outer axes, which are the first numbers.
    pub(crate) fn outer(self, b: &mut Builder, outer: &[(Axis, Operand)]) -> Vec<(Axis, Operand)> {
        outer.iter().enumerate().map(|(k, (axis, _))| (*axis, self.read(b, k))).collect()
    }

    /// Rematerialises a number, `i32`: the compiler does not keep it from where it was needed before.
    pub(crate) fn of(self, b: &mut Builder, number: Operand) -> Operand {
        let nothing = b.load1(Memory::Shared(self.0), Operand::i32(0));
        let nothing = b.convert(Ty::I32, nothing);
        b.add(number, nothing)
    }

    /// Rematerialises a number of 32 bits, `u32`.
    pub(super) fn of_bits(self, b: &mut Builder, number: Operand) -> Operand {
        let nothing = b.load1(Memory::Shared(self.0), Operand::i32(0));
        let nothing = b.convert(Ty::I32, nothing);
        let nothing = b.bits(Ty::U32, nothing);
        b.add(number, nothing)
    }
}
