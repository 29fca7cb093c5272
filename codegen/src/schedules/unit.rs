//! The units that multiply matrices.

word! {
    /// The threads that multiply matrices together.
    Unit {
        /// A warp, which loads fragments.
        Warp = "warp",
        /// The four warps of a warpgroup, from shared memory; `sm_90a`.
        Warpgroup = "warpgroup",
    }
}
