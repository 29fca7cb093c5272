//! Sums of products of whole blocks.
//!
//! A block goes through the second-level cache for each operation. A sum of products that nothing else reads in part is therefore one
//! instruction: it adds up a piece of the block after the other, each of which stays in the nearest cache. Every product and every
//! addition is rounded, in the order of the operations that it stands for.

use oplus_dsl::ir::Binary;

use super::CpuError;
use super::arithmetic::Float;
use super::simd::simd;
use super::tile::{Code, Reg, SumTerm, TileOp};
use super::values::{Slice, Values};

/// How many elements are added up before the next.
const PIECE: usize = 1024;

/// Adds up terms, whose factors are among the operands, for n elements.
///
/// # Errors
/// [`CpuError::OutOfMemory`].
pub(super) fn sum(terms: &[SumTerm], n: usize, dst: &mut Values, operands: &[Slice<'_>]) -> Result<(), CpuError> {
    match operands.first() {
        Some(Slice::F64(_)) => sum_typed::<f64>(terms, dst.room(n)?, operands),
        _ => sum_typed::<f32>(terms, dst.room(n)?, operands),
    }
    Ok(())
}

fn sum_typed<T: Float>(terms: &[SumTerm], dst: &mut [T], operands: &[Slice<'_>]) {
    let operands: Vec<&[T]> = operands.iter().map(|operand| operand.of()).collect();
    simd(
        #[inline(always)]
        || {
            for (piece, dst) in dst.chunks_mut(PIECE).enumerate() {
                let n = dst.len();
                let of = |k: usize| &operands[k][piece * PIECE..][..n];
                for (number, term) in terms.iter().enumerate() {
                    let x = of(term.factor);
                    match (number, term.times.map(of), term.is_subtracted) {
                        (0, None, _) => dst.copy_from_slice(x),
                        (0, Some(y), _) => with(dst, x, y, |_, product| product),
                        (_, None, false) => dst.iter_mut().zip(x).for_each(|(sum, x)| *sum = sum.add(*x)),
                        (_, None, true) => dst.iter_mut().zip(x).for_each(|(sum, x)| *sum = sum.sub(*x)),
                        (_, Some(y), false) => with(dst, x, y, |sum, product| sum.add(product)),
                        (_, Some(y), true) => with(dst, x, y, |sum, product| sum.sub(product)),
                    }
                }
            }
        },
    );
}

/// Combines sums with products.
#[inline(always)]
fn with<T: Float>(sums: &mut [T], x: &[T], y: &[T], f: impl Fn(T, T) -> T) {
    for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
        *sum = f(*sum, x.mul(*y));
    }
}

/// Makes one instruction of every sum of products, and of every sum of more than two terms, whose parts nothing else reads; `stored`
/// registers are read at the end.
pub(super) fn join(code: &mut Code, stored: &[Reg]) {
    let mut sums = Sums::of(code, stored);
    for at in (0..code.instructions.len()).rev() {
        if let Some((terms, operands)) = sums.ending_in(code, at) {
            let instruction = &mut code.instructions[at];
            (instruction.op, instruction.operands) = (TileOp::Sum(terms), operands);
        }
    }
    let mut is_part = sums.is_part.iter();
    code.instructions.retain(|_| !is_part.next().is_some_and(|is| *is));
}

/// The sums of a tile program.
struct Sums {
    /// How often each register is read.
    uses: Vec<usize>,
    /// The instruction that writes each register.
    writers: Vec<Option<usize>>,
    /// The instructions that are parts of sums.
    is_part: Vec<bool>,
}

impl Sums {
    fn of(code: &Code, stored: &[Reg]) -> Sums {
        let mut uses = vec![0; code.registers.len()];
        let read = code.instructions.iter().flat_map(|instruction| &instruction.operands);
        read.chain(stored).for_each(|register| uses[register.0] += 1);
        let mut writers = vec![None; code.registers.len()];
        for (at, instruction) in code.instructions.iter().enumerate() {
            instruction.result.iter().for_each(|result| writers[result.0] = Some(at));
        }
        Sums { uses, writers, is_part: vec![false; code.instructions.len()] }
    }

    /// The terms of the sum that ends in an instruction, and its operands.
    fn ending_in(&mut self, code: &Code, at: usize) -> Option<(Vec<SumTerm>, Vec<Reg>)> {
        let root = code.instructions[at].result.filter(|_| !self.is_part[at])?;
        let (mut terms, mut operands, mut parts) = (vec![], vec![], vec![]);
        let mut next = root;
        loop {
            let (op, l, r) = self.binary(code, next, root, &[Binary::Add, Binary::Sub])?;
            let link = |own: &Self, register: Reg| {
                let is_one = own.uses[register.0] == 1;
                is_one && own.binary(code, register, root, &[Binary::Add, Binary::Sub]).is_some()
            };
            let swaps = op == Binary::Add && !link(self, l) && link(self, r);
            let (l, r) = if swaps { (r, l) } else { (l, r) };
            terms.push(self.term(code, (r, root), op == Binary::Sub, &mut operands, &mut parts)?);
            if !link(self, l) {
                terms.push(self.term(code, (l, root), false, &mut operands, &mut parts)?);
                break;
            }
            parts.extend(self.writers[l.0]);
            next = l;
        }
        terms.reverse();
        if terms.len() < 3 && terms.iter().all(|term| term.times.is_none()) {
            return None;
        }
        parts.iter().for_each(|part| self.is_part[*part] = true);
        Some((terms, operands))
    }

    /// One of some operations that gives a register of numbers as the root is one.
    fn binary(&self, code: &Code, register: Reg, root: Reg, among: &[Binary]) -> Option<(Binary, Reg, Reg)> {
        let instruction = &code.instructions[self.writers[register.0]?];
        let TileOp::Binary(op) = instruction.op else { return None };
        (among.contains(&op) && is_like(code, register, root)).then_some((
            op,
            instruction.operands[0],
            instruction.operands[1],
        ))
    }

    /// A register, or the product that it is, as a term; `None` if any factor is not like the root.
    fn term(
        &self,
        code: &Code,
        (register, root): (Reg, Reg),
        is_subtracted: bool,
        operands: &mut Vec<Reg>,
        parts: &mut Vec<usize>,
    ) -> Option<SumTerm> {
        let mut factor = |register: Reg| {
            let known = operands.iter().position(|operand| *operand == register);
            known.unwrap_or_else(|| {
                operands.push(register);
                operands.len() - 1
            })
        };
        if self.uses[register.0] == 1
            && let Some((_, l, r)) = self.binary(code, register, root, &[Binary::Mul])
            && is_like(code, l, root)
            && is_like(code, r, root)
        {
            parts.extend(self.writers[register.0]);
            return Some(SumTerm { is_subtracted, factor: factor(l), times: Some(factor(r)) });
        }
        is_like(code, register, root).then(|| SumTerm { is_subtracted, factor: factor(register), times: None })
    }
}

/// Whether a register holds numbers of the root's type over the root's axes.
fn is_like(code: &Code, register: Reg, root: Reg) -> bool {
    let [own, root] = [register, root].map(|register| &code.registers[register.0]);
    root.ty.is_float() && (own.ty, own.dims) == (root.ty, root.dims)
}

#[cfg(test)]
mod tests {
    use oplus_dsl::Ty;

    use super::*;
    use crate::cpu::tile::{Instruction, Register};

    /// An operation of two registers.
    type Operation = (Binary, usize, usize);

    /// A tile program of so many registers that are given, which all vary, and then of operations.
    fn code(given: usize, operations: &[Operation]) -> Code {
        let register = |slot| Register { ty: Ty::F32, dims: 1, slot };
        let instruction = |(k, (op, l, r)): (usize, &Operation)| Instruction {
            op: TileOp::Binary(*op),
            operands: vec![Reg(*l), Reg(*r)],
            result: Some(Reg(given + k)),
            spent: 0,
        };
        Code {
            registers: (0..given + operations.len()).map(register).collect(),
            instructions: operations.iter().enumerate().map(instruction).collect(),
        }
    }

    /// The numbers that a register holds in the end.
    fn run(code: &Code, given: &[Values], n: usize, result: Reg) -> Vec<u32> {
        let mut all: Vec<Values> = given.iter().map(|values| values.from(0).to_values().unwrap()).collect();
        all.resize_with(code.registers.len(), || Values::F32(vec![]));
        for instruction in &code.instructions {
            let mut dst = Values::F32(vec![]);
            let operands: Vec<Slice<'_>> =
                instruction.operands.iter().map(|register| all[register.0].from(0)).collect();
            match &instruction.op {
                TileOp::Sum(terms) => sum(terms, n, &mut dst, &operands).unwrap(),
                TileOp::Binary(op) => {
                    let [l, r] = [0, 1].map(|k| operands[k].of::<f32>());
                    let of = |(l, r): (&f32, &f32)| match op {
                        Binary::Add => l + r,
                        Binary::Sub => l - r,
                        _ => l * r,
                    };
                    dst = Values::F32(l.iter().zip(r).map(of).collect());
                }
                _ => unreachable!("no other operation is made"),
            }
            all[instruction.result.unwrap().0] = dst;
        }
        all[result.0].from(0).of::<f32>().iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn joined_sums_have_the_bits_of_their_operations() {
        use Binary::{Add, Mul, Sub};
        let cases: [(&[Operation], usize); 5] = [
            (&[(Mul, 0, 1), (Mul, 2, 3), (Add, 4, 5)], 1),
            (&[(Mul, 0, 1), (Mul, 2, 3), (Sub, 4, 5), (Mul, 1, 2), (Add, 7, 6), (Sub, 8, 0)], 1),
            // The product is read twice.
            (&[(Mul, 0, 1), (Add, 4, 2), (Add, 5, 4)], 2),
            (&[(Add, 0, 1), (Sub, 4, 2)], 1),
            // The subtrahend is a sum of its own.
            (&[(Sub, 0, 1), (Sub, 4, 2), (Sub, 3, 5), (Mul, 6, 6)], 3),
        ];
        for (operations, left) in cases {
            for n in [0, 1, 7, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 3] {
                let numbers = |seed: usize| (0..n).map(move |k| ((k * 37 + seed * 11) % 101) as f32 / 51.0 - 1.0);
                let given: Vec<Values> = (0..4).map(|seed| Values::F32(numbers(seed).collect())).collect();
                let (plain, mut joined) = (code(4, operations), code(4, operations));
                let result = Reg(3 + operations.len());
                join(&mut joined, &[result]);
                assert_eq!(run(&joined, &given, n, result), run(&plain, &given, n, result), "{operations:?}");
                assert_eq!(joined.instructions.len(), left, "{operations:?}");
            }
        }
    }
}
