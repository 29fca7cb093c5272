//! Passes over programs: what is done to a program before it is cut into stages, in order, once.
//!
//! Here, not earlier: the interpreter sees the program as it was written, and so does the adjoint but for relative positions, whose sums
//! have gradients that are sums of the same form.

use oplus_dsl::decay::decays;
use oplus_dsl::ir::Program;
use oplus_dsl::packed::without_inverses;
use oplus_dsl::rebase::rebase;
use oplus_dsl::relative::relative;
use oplus_dsl::simplify::simplified;
use oplus_dsl::verify::{VerifyError, verify};
use thiserror::Error;

/// A pass: a program that gives the same values, written otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// The name, for messages.
    pub name: &'static str,
    run: fn(&Program) -> Program,
}

/// The passes over a program whose kernels may combine elements in any order.
pub const PASSES: [Pass; 5] = [
    Pass { name: "inverses of gathers", run: without_inverses },
    Pass { name: "relative positions", run: relative },
    Pass { name: "rebase", run: rebase },
    Pass { name: "decays as powers of two", run: decays },
    Pass { name: "simplify", run: simplified },
];

/// The passes over a program whose kernels keep to its operations and their order: no sum becomes a product, no exponential a
/// power of two.
pub const ORDERED: [Pass; 2] =
    [Pass { name: "inverses of gathers", run: without_inverses }, Pass { name: "simplify", run: simplified }];

/// A pass that leaves a program which is not well formed: a fault of the pass.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("the pass `{pass}` leaves a program that is not well formed: {fault}")]
pub struct PassError {
    /// The pass.
    pub pass: &'static str,
    /// The fault of the program.
    pub fault: Box<VerifyError>,
}

/// The program after some passes, each of them verified.
///
/// # Errors
/// The first pass that leaves a program which is not well formed.
pub fn run(passes: &[Pass], program: &Program) -> Result<Program, PassError> {
    let mut done = None;
    for pass in passes {
        let before = done.as_ref().unwrap_or(program);
        let program = (pass.run)(before);
        if program == *before {
            continue;
        }
        if let Err(faults) = verify(&program)
            && let Some(fault) = faults.into_iter().next()
        {
            return Err(PassError { pass: pass.name, fault: Box::new(fault) });
        }
        done = Some(program);
    }
    Ok(done.unwrap_or_else(|| program.clone()))
}
