//! The parameters of maps.

use crate::target::WARP;

schedule! {
    /// Map: a block of `32·warps` threads takes `32·warps·vectors·vector` consecutive elements along an axis.
    Map, "map" {
        /// The axis along which lanes lie, an index into the stage's axes.
        lane: u32,
        /// Warps of a block.
        warps: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Accesses per thread and tensor.
        vectors: u32,
    }
}

impl Map {
    /// Elements that a block computes.
    pub fn tile(&self) -> u32 {
        WARP * self.warps * self.vectors * self.vector
    }
}
