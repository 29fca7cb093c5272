//! Blocks whose first warps multiply while the others copy.

use crate::build::Builder;
use crate::tile::{Operand, Stmt};

/// Divides a block into warps that multiply and warps that copy. `registers` are the most that a thread of each may have, where
/// copying warps give some up.
pub(crate) fn divide(
    b: &mut Builder,
    multiplies: Operand,
    registers: Option<(u32, u32)>,
    multiply: impl FnOnce(&mut Builder),
    copy: impl FnOnce(&mut Builder),
) {
    let limit = |b: &mut Builder, count: Option<u32>, more| {
        if let Some(count) = count {
            b.push(Stmt::SetMaxRegisters { count, more });
        }
    };
    let (multiplying, copying) = registers.unzip();
    b.if_else(
        multiplies,
        |b| {
            limit(b, multiplying, true);
            multiply(b);
        },
        |b| {
            limit(b, copying, false);
            copy(b);
        },
    );
}
