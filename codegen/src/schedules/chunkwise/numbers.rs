//! The numbers of a chunk whose weights may be [products](super::factored), as warps that only copy write them for all threads.

use super::ChunkwiseKernel;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Reg, SharedId, SharedKind};
use oplus_dsl::{Elem, Ty};

/// Numbers of a chunk.
pub(super) const NUMBERS: u32 = 4;

/// The numbers of every stage's chunk.
#[derive(Clone, Copy)]
pub(crate) struct Factored(pub(super) SharedId);

/// The numbers of a chunk, as all threads read them.
#[derive(Clone, Copy)]
pub(super) struct ChunkNumbers {
    /// The factor that renews the state before the chunk; 1 where it stays.
    pub renewal: Operand,
    /// The sum of logarithms [L](super::factored).
    pub base: Operand,
    /// Whether weights are products.
    pub is_near: Operand,
    /// The most that a state of `f16` may be multiplied by.
    pub most: Operand,
}

impl Factored {
    /// Declares the numbers of so many stages.
    pub(super) fn declare(b: &mut Builder, stages: u32) -> Factored {
        Factored(b.shared("chunks", SharedKind::Elem(Elem::F32), NUMBERS * stages))
    }
}

impl ChunkwiseKernel<'_> {
    /// Whether the state is kept without its decays.
    fn is_divided(&self) -> bool {
        self.factored.is_some() && self.powers.is_none()
    }

    /// The register of the sum L, of a role that follows it.
    pub(super) fn base(&self, b: &mut Builder) -> Option<Reg> {
        self.is_divided().then(|| b.var(zero(Ty::F32)))
    }

    /// Reads the numbers of a stage's chunk.
    pub(super) fn numbers(&self, b: &mut Builder, stage: Operand) -> Option<ChunkNumbers> {
        let Factored(chunks) = self.factored?;
        let stage = self.of_head(b, stage, self.schedule.stages);
        let at = b.mul(stage, NUMBERS);
        let four = b.load(Memory::Shared(chunks), at, NUMBERS, None, zero(Ty::F32));
        let is_near = b.ne(four[2], zero(Ty::F32));
        Some(ChunkNumbers { renewal: four[0], base: four[1], is_near, most: four[3] })
    }
}
