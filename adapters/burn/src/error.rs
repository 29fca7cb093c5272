//! What can go wrong.

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
        /// What the tensor stores.
        found: String,
    },
    /// A tensor is on a backend that kernels do not run on.
    #[error("`{tensor}` is on the backend {found}; kernels run on Flex")]
    Backend {
        /// Name of the parameter.
        tensor: String,
        /// The backend.
        found: String,
    },
}
