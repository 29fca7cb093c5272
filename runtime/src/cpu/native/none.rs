//! Without the feature `jit` no stage has machine code of its own.

use super::{Maps, Native, Refusal, Steps, Tensors};
use crate::cpu::plan::Stage;

/// A type of numbers.
pub(super) trait Float: Copy {}

impl Float for f32 {}
impl Float for f64 {}

/// A function, which there is none of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {}

impl Function {
    pub(super) fn takes(self, _: usize) -> bool {
        match self {}
    }

    pub(super) fn squares(self, _: usize) -> usize {
        match self {}
    }

    pub(super) fn group(self) -> usize {
        match self {}
    }

    pub(super) fn streams<T: Float>(self, _: usize, _: &[&mut [T]]) -> bool {
        match self {}
    }

    pub(super) fn call<T: Float>(self, _: Steps, _: Tensors<'_, '_, T>) {
        match self {}
    }
}

/// No code.
pub(super) fn of(_: &Stage) -> Result<Option<Native>, Refusal> {
    Ok(None)
}

/// No code.
pub(super) fn maps(_: &Stage) -> Result<Option<Maps>, Refusal> {
    Ok(None)
}
