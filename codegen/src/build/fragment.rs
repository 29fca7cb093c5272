//! Matrix fragments and where their rows lie in shared memory.

use super::Builder;
use crate::tile::{Expr, Half, Operand, Reg, SharedId, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// Bytes of the pieces that rows of matrices are made of.
pub const PIECE: u32 = 16;

/// Where piece `piece` of row `row` of an array lies when rows have `pieces` pieces (2, 4 or 8): the pieces of a row
/// change places with the row, so that the same piece of eight neighbouring rows lies in eight places modulo 128 bytes.
/// It is ⊻ of the piece's number with row·pieces / 8 modulo `pieces`, and so what is constant in the piece's number
/// can as well be ⊻ed afterwards. These are also the layouts of 128, 64 and 32 bytes that warpgroups read.
pub fn swizzle(b: &mut Builder, row: Operand, piece: Operand, pieces: u32) -> Operand {
    let divided = b.binary(Binary::Div, row, 8 / pieces.clamp(1, 8) as i32);
    let mask = b.binary(Binary::And, divided, pieces as i32 - 1);
    b.binary(Binary::Xor, piece, mask)
}

impl Builder {
    /// Loads `n` matrices of 8 rows of 16 bytes, lane 8m + i naming row i of matrix m.
    pub fn load_matrix(&mut self, array: SharedId, index: Operand, n: usize, transposed: bool) -> Vec<Operand> {
        let dst: Vec<Reg> = (0..n).map(|_| self.reg(Ty::U32)).collect();
        let values = dst.iter().map(|r| Operand::Reg(*r)).collect();
        self.push(Stmt::LoadMatrix { dst, array, index, transposed });
        values
    }

    /// Stores matrices of 8 rows of 16 bytes, lane 8m + i naming row i of matrix m.
    pub fn store_matrix(&mut self, array: SharedId, index: Operand, values: &[Operand], transposed: bool) {
        self.push(Stmt::StoreMatrix { values: values.to_vec(), array, index, transposed });
    }

    /// Adds A·B to a 16 × 8 accumulator.
    pub fn mma(&mut self, elem: Elem, accumulator: [Reg; 4], a: [Operand; 4], b: [Operand; 2]) {
        self.push(Stmt::Mma { elem, dst: accumulator, a, b, c: accumulator.map(Operand::Reg) });
    }

    /// Two values rounded to an element type of 16 bits, in a `u32`.
    pub fn pack(&mut self, elem: Elem, low: Operand, high: Operand) -> Operand {
        self.let_(Ty::U32, Expr::Pack(elem, low, high))
    }

    /// The two values of a packed `u32`, low half first.
    pub fn unpack(&mut self, elem: Elem, word: Operand) -> [Operand; 2] {
        [Half::Low, Half::High].map(|half| self.let_(Ty::F32, Expr::Unpack(elem, half, word)))
    }
}
