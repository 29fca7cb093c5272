//! Rings of stages in shared memory, which some threads fill and others read, and the mbarriers that they meet at.
//!
//! Tile number n of a block goes through stage n mod `stages`, in phase n / `stages` of that stage's mbarriers. Waits are for the
//! parity of a phase. Where numbers are known, stage and parity [follow](Ring::at) from them; a role that
//! goes from tile to tile keeps them in registers, as a [`Cursor`].

use crate::build::Builder;
use crate::tile::{Mbarrier, Operand, Reg, SharedId, Stmt};
use oplus_dsl::ir::Binary;

/// A ring of stages.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    stages: u32,
    /// Whether stage and phase are read from the bits of a number.
    by_bits: bool,
}

/// A stage of a ring in one phase.
#[derive(Clone, Copy)]
pub(crate) struct RingStage {
    /// Its number, `i32`.
    pub index: Operand,
    /// The parity of the phase, `i32`.
    pub parity: Operand,
}

/// The position of a role in a ring, in registers.
pub(crate) struct Cursor {
    /// The stage, `i32`.
    pub(crate) stage: Reg,
    /// The parity of the phase, `i32`.
    pub(crate) parity: Reg,
}

impl Ring {
    /// A ring of any number of stages.
    pub(crate) fn of(stages: u32) -> Ring {
        Ring { stages, by_bits: false }
    }

    /// A ring whose number of stages is a power of two.
    pub(crate) const fn of_power(stages: u32) -> Ring {
        Ring { stages, by_bits: true }
    }

    /// The stage of tile number `number` (`i32`).
    pub(crate) fn stage(self, b: &mut Builder, number: Operand) -> Operand {
        match self.by_bits {
            true => b.binary(Binary::And, number, self.stages as i32 - 1),
            false => b.binary(Binary::Rem, number, self.stages),
        }
    }

    /// The stage of tile number `number` (`i32`), with the parity of its phase.
    pub(crate) fn at(self, b: &mut Builder, number: Operand) -> RingStage {
        let index = self.stage(b, number);
        let phase = match self.by_bits {
            true => b.binary(Binary::Shr, number, self.stages.trailing_zeros()),
            false => b.binary(Binary::Div, number, self.stages),
        };
        RingStage { index, parity: b.binary(Binary::And, phase, 1) }
    }

    /// A cursor at a stage, in a phase of parity `parity`. A role that waits for stages to be emptied begins with 1: the phase before
    /// the first counts as complete.
    pub(crate) fn cursor(b: &mut Builder, stage: Operand, parity: i32) -> Cursor {
        Cursor { stage: b.var(stage), parity: b.var(Operand::i32(parity)) }
    }

    /// Moves a cursor to the next stage.
    pub(crate) fn advance(self, b: &mut Builder, at: &Cursor) {
        self.wrap(b, at, 1, Binary::Eq);
    }

    /// Moves a cursor some stages on; their number divides that of the ring.
    pub(crate) fn advance_by(self, b: &mut Builder, at: &Cursor, by: u32) {
        self.wrap(b, at, by, Binary::Ge);
    }

    /// Moves a cursor; `is_past` compares the stage with the end of the ring.
    fn wrap(self, b: &mut Builder, at: &Cursor, by: u32, is_past: Binary) {
        let stages = Operand::i32(self.stages as i32);
        let next = b.add(at.stage.into(), by);
        let wraps = b.binary(is_past, next, stages);
        let first = if by == 1 { Operand::i32(0) } else { b.sub(next, stages) };
        let stage = b.select(wraps, first, next);
        let flipped = b.binary(Binary::Xor, at.parity.into(), 1);
        let parity = b.select(wraps, flipped, at.parity.into());
        b.assign(at.stage, stage);
        b.assign(at.parity, parity);
    }
}

impl Cursor {
    /// The cursor's stage and parity.
    pub(crate) fn here(&self) -> RingStage {
        RingStage { index: self.stage.into(), parity: self.parity.into() }
    }
}

impl RingStage {
    /// The first stage in the first phase.
    pub(crate) const FIRST: RingStage = RingStage { index: Operand::i32(0), parity: Operand::i32(0) };

    /// The only stage of a ring of one, in a phase (`i32`).
    pub(crate) fn only(b: &mut Builder, phase: Operand) -> RingStage {
        RingStage { index: Operand::i32(0), parity: b.binary(Binary::And, phase, 1) }
    }

    /// The stage in the phase before.
    pub(crate) fn before(self, b: &mut Builder) -> RingStage {
        RingStage { parity: b.binary(Binary::Xor, self.parity, 1), ..self }
    }
}

impl Builder {
    /// Initialises the mbarriers of every stage of an array.
    pub(crate) fn init_mbarriers(&mut self, array: SharedId, stages: u32, arrivals: u32) {
        for i in 0..stages {
            self.push(Stmt::MbarrierInit(Mbarrier { array, index: Operand::i32(i as i32) }, arrivals));
        }
    }

    /// Waits until a phase of a stage is complete.
    pub(crate) fn wait(&mut self, array: SharedId, at: RingStage) {
        self.push(Stmt::MbarrierWait(Mbarrier { array, index: at.index }, at.parity));
    }

    /// Arrives at the mbarrier of a stage.
    pub(crate) fn arrive(&mut self, array: SharedId, stage: Operand) {
        self.push(Stmt::MbarrierArrive(Mbarrier { array, index: stage }));
    }

    /// Arrives at the mbarrier of a stage once the thread's asynchronous copies are there.
    pub(crate) fn arrive_with_copies(&mut self, array: SharedId, stage: Operand) {
        self.push(Stmt::CopyAsyncArrive(Mbarrier { array, index: stage }));
    }
}
