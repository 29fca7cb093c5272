//! Builds without the feature `cuda`, in which candle has no tensors on a GPU either.

use std::marker::PhantomData;

use candle_core::{CudaDevice, CudaStorage, DType, Error, Layout, Result, Shape};
use oplus::Elem;

use super::Seen;

/// Nothing is ever held.
pub(super) type Guard<'s> = PhantomData<&'s ()>;

fn without<T>() -> Result<T> {
    Err(Error::NotCompiledWithCudaSupport)
}

pub(super) fn read<'s>(_: &'s CudaStorage, _: &Layout, _: Elem) -> Result<Seen<'s>> {
    without()
}

pub(super) fn written<'s>(_: &'s mut CudaStorage, _: &Shape) -> Result<Seen<'s>> {
    without()
}

pub(super) fn uninitialised(_: &CudaDevice, _: DType, _: usize) -> Result<CudaStorage> {
    without()
}

/// The one element of a token.
pub(crate) fn token(_: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    without()
}
