//! Error bounds: how far a computed output may be from the exact one.
//!
//! A program is evaluated once more, over numbers that carry a *magnitude* m and an *error* e next to their value v. With
//! u the unit roundoff of a value's type (2⁻⁵³, 2⁻²⁴; to store bf16 2⁻⁸, f16 2⁻¹¹):
//!
//! ```text
//! inputs      m = |v|               e = 0
//! x ± y       m = m(x) + m(y)       e = e(x) + e(y) + u·m
//! x · y       m = m(x)·m(y)         e = m(x)·e(y) + e(x)·m(y) + u·m
//! x / y       m = m(x)/|y|          e = (e(x) + m·e(y))/|y| + 4u·m
//! f(x)        m = |f(x)|            e = |f′(x)|·e(x) + 4u·m
//! max, min    m = max(m(x), m(y))   e = max(e(x), e(y))
//! ```
//!
//! So m is a scan of absolute values, and e is that scan times u times the depth of the tree: scans are evaluated as
//! balanced trees, of depth ⌈log₂ n⌉. A schedule's tree is another one, and deeper by the elements that a thread holds;
//! an output may therefore be wrong by [`slack`]·e, and by the rounding to what it stores. Sums and products of whole
//! numbers that u can tell apart are exact in every order: there e stays 0 and the output must agree in every bit.
//!
//! A condition that hangs on two numbers closer than their errors may go either way: what it selects is then uncertain by
//! their difference. An integer that hangs on such a condition is not compared.

mod cancel;
mod evaluate;
mod matrix;
mod number;
mod scan;
#[cfg(test)]
mod tests;

pub use evaluate::{Cell, evaluate};
pub use number::{Number, unit};

use cancel::outputs_that_cancel;
use oplus_codegen::plan::Launch;
use oplus_codegen::schedules::{Form, Schedule, Unit};
use oplus_dsl::Elem;

/// How much deeper than a balanced tree a schedule's order of combination may be, in effect.
pub const SLACK: f64 = 8.0;

/// From here on the slack of schedules that round weights and states to 16 bits.
pub const ROUNDING: f64 = SLACK * (1u32 << 15) as f64;

/// The slack of schedules that divide factors of `f32` in two parts of 8 bits, and leave out the product of both low ones.
pub const PARTS: f64 = SLACK * (1u32 << 8) as f64;

/// How much deeper than a balanced tree the order of schedules may be over axes of these sizes: a thread that walks
/// along time combines one element after the other, n − 1 levels instead of ⌈log₂ n⌉. Chunks and pairs in calls of 16-bit
/// elements round weights and states to 16 bits for their matrix products, an error of 2⁻⁹ instead of 2⁻²⁴ of every term;
/// chunks by warpgroups and chunks of 16 times divide factors of `f32` in two parts, an error of 2⁻¹⁶.
pub fn slack(steps: &[Launch], sizes: &[usize], elem: Elem) -> Slack {
    let schedules: Vec<Schedule> = steps.iter().map(|step| step.schedule).collect();
    Slack { factor: factor(&schedules, sizes, elem), cancels: outputs_that_cancel(steps) }
}

/// The error that an order of combination may have beyond a balanced tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slack {
    /// The factor of an element's error.
    pub factor: f64,
    /// The outputs of which any element may be as far off as the least exact one: bit k is output k.
    cancels: u64,
}

impl Slack {
    /// The slack of calls on the CPU.
    pub const TREE: Slack = Slack { factor: SLACK, cancels: 0 };

    /// Whether an element of an output may be as far off as the least exact one of it.
    pub fn cancels(&self, output: usize) -> bool {
        self.cancels >> output & 1 == 1
    }
}

fn factor(schedules: &[Schedule], sizes: &[usize], elem: Elem) -> f64 {
    let longest = sizes.iter().copied().max().unwrap_or(0).max(2) as f64;
    let walks = schedules.iter().any(|schedule| match schedule {
        Schedule::Columns(columns) => columns.form == Form::Walk,
        Schedule::StateSpace(_) | Schedule::Flash(_) | Schedule::StateSpaceBackward(_) => true,
        _ => false,
    });
    let narrow = matches!(elem, Elem::Bf16 | Elem::F16);
    let rounds = |schedule: &Schedule| match schedule {
        Schedule::Chunkwise(_) | Schedule::ChunkwiseBackward(_) | Schedule::Flash(_) => narrow,
        Schedule::ChunkDelta(_) | Schedule::ChunkDeltaBackward(_) => narrow,
        _ => false,
    };
    if schedules.iter().any(rounds) {
        return ROUNDING;
    }
    let divides = |schedule: &Schedule| match schedule {
        Schedule::Chunkwise(s) => s.unit == Unit::Warpgroup,
        Schedule::ChunkwiseBackward(s) => s.warpgroups,
        Schedule::ChunkDelta(_) | Schedule::ChunkDeltaBackward(_) => true,
        _ => false,
    };
    let least = if elem == Elem::F32 && schedules.iter().any(divides) { PARTS } else { SLACK };
    // The interpreter adds one element after the other, too. In `f64` it has no more exact type, so its own roundings count.
    if walks || elem == Elem::F64 { least.max(longest / longest.log2()) } else { least }
}
