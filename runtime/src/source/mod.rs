//! Where compiled kernels come from.

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// The PTX text.
    pub text: String,
}
