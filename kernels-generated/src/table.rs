//! Written by `oplus bake`; do not edit.

pub(crate) static KERNELS: &[(&str, &str)] = &[];
