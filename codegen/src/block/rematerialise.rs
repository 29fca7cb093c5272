//! Rematerialisation: numbers that are computed again rather than kept in registers.
//!
//! The compiler computes equal numbers once: indices that are needed before a walk and after it would stay in registers all
//! the while. A number that is read from shared memory, or to which a 0 from shared memory is added, is a new one to the compiler.

use crate::build::Builder;
use crate::tile::{Memory, Operand, Reg, SharedId};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

/// Numbers in shared memory, `i64`, of which the first is 0.
#[derive(Clone, Copy)]
pub(crate) struct Rematerialiser(SharedId);

impl Rematerialiser {
    /// Declares room for so many numbers.
    pub(crate) fn declare(b: &mut Builder, numbers: usize) -> Rematerialiser {
        Rematerialiser(b.shared_values("anew", Ty::I64, 1 + numbers as u32))
    }

    /// Writes the numbers, by one thread; a barrier follows.
    pub(crate) fn store(self, b: &mut Builder, numbers: &[Operand]) {
        for (k, number) in (0..).zip([Operand::i64(0)].iter().chain(numbers)) {
            b.store(Memory::Shared(self.0), Operand::i32(k), &[*number], None);
        }
    }

    /// The number at a place.
    pub(crate) fn read(self, b: &mut Builder, place: usize) -> Operand {
        b.load1(Memory::Shared(self.0), Operand::i32(1 + place as i32))
    }

    /// The indices along outer axes: the first numbers.
    pub(crate) fn outer(self, b: &mut Builder, outer: &[(Axis, Operand)]) -> Vec<(Axis, Operand)> {
        outer.iter().enumerate().map(|(k, (axis, _))| (*axis, self.read(b, k))).collect()
    }

    /// Rematerialises a number, `i32`.
    pub(crate) fn of(self, b: &mut Builder, number: Operand) -> Operand {
        let nothing = b.load1(Memory::Shared(self.0), Operand::i32(0));
        let nothing = b.convert(Ty::I32, nothing);
        b.add(number, nothing)
    }

    /// Rematerialises an index, `i64`.
    pub(crate) fn of_index(self, b: &mut Builder, index: Operand) -> Operand {
        let nothing = b.load1(Memory::Shared(self.0), Operand::i32(0));
        b.add(index, nothing)
    }

    /// Rematerialises a number of 32 bits, `u32`.
    pub(crate) fn of_bits(self, b: &mut Builder, number: Operand) -> Operand {
        let nothing = b.load1(Memory::Shared(self.0), Operand::i32(0));
        let nothing = b.convert(Ty::I32, nothing);
        let nothing = b.bits(Ty::U32, nothing);
        b.add(number, nothing)
    }

    /// Computes sums behind a branch that is always taken, though no compiler can know that. An assembler starts products as late as it can
    /// and keeps the factors of all of them in registers, but it moves no product across a branch. `numbers` names the operands that `add`
    /// changes.
    pub(crate) fn apart<S: ?Sized>(
        self,
        b: &mut Builder,
        sums: &mut S,
        numbers: fn(&mut S) -> Vec<&mut Operand>,
        add: impl FnOnce(&mut Builder, &mut S),
    ) {
        let nothing = b.load1(Memory::Shared(self.0), Operand::i32(0));
        let is_taken = b.eq(nothing, 0);
        let regs: Vec<Reg> = numbers(sums).into_iter().map(|number| b.var(*number)).collect();
        let read =
            |sums: &mut S| numbers(sums).into_iter().zip(&regs).for_each(|(number, reg)| *number = (*reg).into());
        read(sums);
        b.if_(is_taken, |b| {
            add(b, sums);
            numbers(sums).into_iter().zip(&regs).for_each(|(number, reg)| b.assign(*reg, *number));
        });
        read(sums);
    }
}
