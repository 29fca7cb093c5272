//! The parameters of recurrences.

use crate::target::WARP;

schedule! {
    /// Recurrences of matrices, state by state: `lanes` lanes of a warp hold a row of the state in registers, lane l its places from
    /// l·`states` on, and go through all steps.
    Recurrence, "recurrence" {
        /// Warps of a block.
        warps: u32,
        /// Lanes that share a row of the state, a power of two.
        lanes: u32,
        /// Places of a row that a lane holds.
        states: u32,
        /// Steps that are loaded before they are computed.
        ahead: u32,
        /// Consecutive places per access; divides `states`.
        vector: u32,
        /// Whether rows may be shorter than there is room for.
        padded: bool,
        /// Whether sums run from the first place to the last, and every product is rounded before it is added.
        ordered: bool,
    }
}

impl Recurrence {
    /// Places of a row that there is room for.
    pub fn capacity(&self) -> u32 {
        self.lanes * self.states
    }

    /// Rows of a block.
    pub fn rows(&self) -> u32 {
        self.warps * (WARP / self.lanes)
    }
}
