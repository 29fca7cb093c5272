//! Facts of the machines that kernels are made for.

use std::fmt::{self, Display, Formatter};

use crate::words::counted;

/// Lanes of a warp.
pub const WARP: u32 = 32;

/// Registers of a multiprocessor.
pub(crate) const REGISTERS: u32 = 65536;

/// The registers that each thread of a block begins with, where warps change their number and so many blocks share a multiprocessor. All of
/// a block's belong to it until its end; what the multiprocessor has beside them does not.
pub(crate) fn registers_at_start(threads: u32, blocks: u32) -> u32 {
    (REGISTERS / threads.saturating_mul(blocks).max(1)) & !7
}

/// The instruction set a kernel is compiled for. Part of every kernel's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// `sm_80`, PTX 7.8: runs on Ampere and everything after it; no bulk copies.
    Sm80,
    /// `sm_90a`, PTX 8.0: Hopper only; bulk copies and mbarrier transactions.
    Sm90a,
}

/// The device a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The instruction set.
    pub isa: Isa,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that one block may use, bytes.
    pub shared_bytes: u32,
}

impl Isa {
    /// Both instruction sets, the portable one first.
    pub const ALL: [Isa; 2] = [Isa::Sm80, Isa::Sm90a];

    /// The name `ptxas` and LLVM know it by.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Sm80 => "sm_80",
            Isa::Sm90a => "sm_90a",
        }
    }

    /// The instruction sets of the devices that can run a kernel of this one whose blocks have so many bytes of shared memory: its own, and of
    /// the portable one that of Hopper, too. An A100 has the most shared memory of devices before Hopper.
    pub fn devices(self, shared_bytes: u32) -> impl Iterator<Item = Isa> {
        let has_room = move |device: Isa| {
            let most = if device == Isa::Sm90a { Target::H200 } else { Target::A100 };
            shared_bytes <= most.shared_bytes
        };
        Isa::ALL.into_iter().filter(move |device| (*device == self || self == Isa::Sm80) && has_room(*device))
    }

    /// Whether the copy engine (`cp.async.bulk`) and transaction mbarriers exist.
    pub fn has_bulk_copies(self) -> bool {
        self == Isa::Sm90a
    }

    /// Whether the four warps of a warpgroup multiply matrices together.
    pub fn has_warpgroups(self) -> bool {
        self == Isa::Sm90a
    }

    /// Whether a launch may begin before the one ahead of it on its stream has ended, and wait for that itself.
    pub fn has_early_launches(self) -> bool {
        self == Isa::Sm90a
    }

    /// Whether a warp writes fragments to shared memory as matrices.
    pub fn stores_matrices(self) -> bool {
        self == Isa::Sm90a
    }

    /// The best instruction set for a device of that compute capability; `None` when it is too old.
    pub fn for_capability(major: i32, minor: i32) -> Option<Isa> {
        match (major, minor) {
            (9, 0) => Some(Isa::Sm90a),
            (8.., _) => Some(Isa::Sm80),
            _ => None,
        }
    }
}

/// The device of a plan, in words: `H200 (sm_90a, 132 multiprocessors)`.
impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Target::H200 => "H200",
            Target::A100 => "A100",
            _ => "GPU",
        };
        write!(f, "{name} ({}, {})", self.isa.name(), counted(self.multiprocessors, "multiprocessor"))
    }
}

impl Target {
    /// An H200 (or H100) with 132 multiprocessors.
    pub const H200: Target = Target { isa: Isa::Sm90a, multiprocessors: 132, shared_bytes: 232_448 };
    /// An A100 with 108 multiprocessors.
    pub const A100: Target = Target { isa: Isa::Sm80, multiprocessors: 108, shared_bytes: 166_912 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_kernels_run_where_their_blocks_have_room() {
        let devices = |isa: Isa, bytes: u32| isa.devices(bytes).collect::<Vec<_>>();
        assert_eq!(devices(Isa::Sm80, Target::A100.shared_bytes), Isa::ALL);
        assert_eq!(devices(Isa::Sm80, Target::A100.shared_bytes + 1), [Isa::Sm90a]);
        assert_eq!(devices(Isa::Sm90a, 0), [Isa::Sm90a]);
        assert_eq!(devices(Isa::Sm80, Target::H200.shared_bytes + 1), []);
    }
}
