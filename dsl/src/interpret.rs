//! The interpreter: what a program means, executed plainly. Every other way of running one is tested against it.
//!
//! Values are computed node by node over all their indices, each in an array of `f64`, `i64` or `bool`. A [`Mode`]
//! says how floats are rounded and in which order scans and reductions combine.

mod array;
mod columns;
mod combine;
mod matrix;
mod nodes;
mod scans;
mod shapes;
#[cfg(test)]
mod tests;

pub use array::{Array, Data};
pub use combine::Combiner;

use thiserror::Error;

use crate::elem::Elem;
use crate::ir::{Axis, Program, Value};
use crate::verify::{VerifyError, verify};

use nodes::Interpreter;
use shapes::Shapes;

/// How a program is interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// How floats are rounded.
    pub precision: Precision,
    /// In which order scans and reductions combine.
    pub order: Order,
}

/// How floats are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Every float is an f64, whatever its type.
    #[default]
    Exact,
    /// Every operation is rounded to its type; loads, stores and conversions round to their element type.
    /// (`call` is taken to be f64: instantiate the program first.)
    Storage,
}

/// In which order scans and reductions combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Strictly from the first element visited to the last.
    #[default]
    Sequential,
    /// By pairs, pairs of pairs and so on; the initial state comes last.
    Tree,
}

/// Why a program cannot be interpreted with these inputs.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum InterpretError {
    /// The program does not verify.
    #[error("the program is not valid: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<VerifyError>),
    /// Not one input per parameter.
    #[error("the program has {expected} parameter(s), but {given} input(s) are given")]
    Count {
        /// How many parameters there are.
        expected: usize,
        /// How many inputs are given.
        given: usize,
    },
    /// No input for a parameter without default.
    #[error("parameter `{param}` is required")]
    Missing {
        /// The parameter.
        param: String,
    },
    /// An input of another rank than its parameter.
    #[error("`{param}` has the axes [{axes}], but {given} size(s) are given")]
    Rank {
        /// The parameter.
        param: String,
        /// Its axes.
        axes: String,
        /// How many sizes the input has.
        given: usize,
    },
    /// Inputs that give different sizes to an axis.
    #[error("axis `{axis}` has size {size} in {tensor}, but {other_size} in {other}")]
    Size {
        /// The axis.
        axis: String,
        /// The tensor that gave the size first.
        tensor: String,
        /// To which size.
        size: usize,
        /// The tensor that disagrees.
        other: String,
        /// With which size.
        other_size: usize,
    },
    /// An axis that no input has.
    #[error("no input has axis `{axis}`: its size must be given")]
    Unbound {
        /// The axis.
        axis: String,
    },
    /// A list of another length than sequences have ends.
    #[error(transparent)]
    Ends(#[from] crate::ir::EndsError),
    /// An input whose data does not fill its sizes.
    #[error("`{param}` has {expected} element(s), but {given} are given")]
    Length {
        /// The parameter.
        param: String,
        /// The product of the sizes.
        expected: usize,
        /// How many elements the input has.
        given: usize,
    },
    /// An input of another kind than its parameter.
    #[error("`{param}` stores `{elem}`, but {given} are given")]
    Kind {
        /// The parameter.
        param: String,
        /// The type that it stores.
        elem: Elem,
        /// The contents of the input, in words.
        given: &'static str,
    },
    /// A value with too many elements for this machine.
    #[error("{what} would have more than {} elements", shapes::MAX_ELEMENTS)]
    TooLarge {
        /// The value or output.
        what: String,
    },
}

/// The outputs of a program for inputs in the order of its parameters; `None` takes the default.
pub fn interpret(program: &Program, inputs: &[Option<Array>], mode: Mode) -> Result<Vec<Array>, InterpretError> {
    interpret_sized(program, inputs, &[], mode)
}

/// [`interpret`], with the sizes of axes that no input has.
pub fn interpret_sized(
    program: &Program,
    inputs: &[Option<Array>],
    sizes: &[(Axis, usize)],
    mode: Mode,
) -> Result<Vec<Array>, InterpretError> {
    verify(program).map_err(InterpretError::Invalid)?;
    let shapes = Shapes::bind(program, inputs, sizes)?;
    let mut interpreter = Interpreter::new(program, inputs, shapes, mode);
    for i in 0..program.nodes.len() {
        interpreter.run(Value(i as u32))?;
    }
    program.outputs.iter().map(|output| interpreter.output(output)).collect()
}
