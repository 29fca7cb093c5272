//! Functions of one value as tile arithmetic, the same for the simulator and for PTX.

use oplus_dsl::ir::Unary;

/// Whether every back end has the function as one operation with one defined result. The others are expanded.
pub fn is_native(op: Unary) -> bool {
    use Unary::{Abs, Floor, Neg, Not, Recip, Relu, Sign, Sqrt};
    matches!(op, Neg | Not | Abs | Sign | Sqrt | Recip | Relu | Floor)
}
