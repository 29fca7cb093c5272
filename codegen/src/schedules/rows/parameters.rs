//! The parameters of rows.

use crate::target::WARP;

schedule! {
    /// Rows: a *team* of `row_warps` warps, or of `lanes` lanes of one, scans `rows` rows at once in tiles of
    /// [`Rows::tile`] elements. Lane l of a warp holds elements l·vector … l·vector + vector − 1 of each of its
    /// `vectors` stretches of `lanes·vector` consecutive elements.
    Rows, "rows" {
        /// Warps of a block.
        warps: u32,
        /// Warps of a team; divides `warps`.
        row_warps: u32,
        /// Lanes of a team within a warp; 32 when it has more than one warp.
        lanes: u32,
        /// Rows that a team scans at once.
        rows: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Accesses per lane, row and tensor in a tile.
        vectors: u32,
    }
}

impl Rows {
    /// Elements of a row that a team scans between two updates of its carry.
    pub fn tile(&self) -> u32 {
        self.row_warps * self.lanes * self.vectors * self.vector
    }

    /// Rows that a block scans at once.
    pub fn block_rows(&self) -> u32 {
        self.warps / self.row_warps * (WARP / self.lanes) * self.rows
    }
}
