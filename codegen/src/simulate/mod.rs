//! Runs kernels on the CPU.

#[cfg(test)]
pub(crate) mod lanes;
