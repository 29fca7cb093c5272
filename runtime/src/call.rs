//! What a call leaves behind for its gradient.

use oplus_dsl::Elem;

use crate::Tensor;

/// A call that has been made: handles to its inputs and outputs, which are all that its gradient needs (the states in
/// between are computed again). It keeps their memory alive. What is written into them later changes the gradient.
#[derive(Clone, Debug)]
pub struct Call {
    /// The program that was called.
    pub(crate) program: u64,
    pub(crate) sizes: Vec<usize>,
    pub(crate) elem: Elem,
    pub(crate) inputs: Vec<Option<Tensor>>,
    pub(crate) outputs: Vec<Tensor>,
}
