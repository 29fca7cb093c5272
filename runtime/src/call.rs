//! What a call leaves behind for its gradient.

use oplus_codegen::plan;
use oplus_dsl::Elem;

use crate::Tensor;

/// A call that has been made: handles to its inputs and outputs, which are all that its gradient needs (the states in
/// between are computed again, unless [`record`](crate::record) has had some saved). It keeps their memory alive. What is written into them later changes the gradient.
#[derive(Clone, Debug)]
pub struct Call {
    /// The program that was called.
    pub(crate) program: u64,
    /// The parameters that stored what they may store instead.
    pub(crate) others: Vec<usize>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) elem: Elem,
    pub(crate) inputs: Vec<Option<Tensor>>,
    pub(crate) outputs: Vec<Tensor>,
    /// States that it has saved for the gradient, see [`record`](crate::record).
    pub(crate) residual: Option<Residual>,
}

/// States that a call has saved, and their form.
#[derive(Clone, Debug)]
pub(crate) struct Residual {
    pub(crate) form: plan::Residual,
    pub(crate) states: Tensor,
}
