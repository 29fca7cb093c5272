//! Reasons to refuse a call.

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself.
    #[error(transparent)]
    Call(#[from] oplus::Error),
    /// A tensor stores what no kernel takes.
    #[error("`{tensor}` stores {found}, which no kernel takes")]
    Stored {
        /// Name of the parameter.
        tensor: String,
        /// The elements of the tensor.
        found: String,
    },
    /// A tensor is on a backend that kernels do not run on, or on another one than the tensors beside it.
    #[error("`{tensor}` is on the backend {found}; {}", KNOWN)]
    Backend {
        /// Name of the parameter.
        tensor: String,
        /// The backend.
        found: String,
    },
    /// burn could not do what a call needs of it.
    #[error("burn: {reason}")]
    Burn {
        /// burn's words.
        reason: String,
    },
}

/// The backends that kernels run on.
const KNOWN: &str = if cfg!(feature = "cuda") {
    "kernels run on Flex or on CUDA, where all tensors of a call are"
} else {
    "kernels run on Flex, and on CUDA with the feature `cuda` of oplus-burn"
};
