//! Sums over rows beside those over columns: the gradient of attention in one kernel, with five products.
//!
//! ```text
//! s[n, m], t[n, m]    contractions of a row n and a column m
//! w[n, m], u[n, m]    weights of the two payloads, of which one also has a sum over rows
//! y[n] = Σ_m w·leaf[m],  z[n] = Σ_m u·leaf'[m],  x[m] = Σ_n u·leaf''[n]
//! ```
//!
//! A block has a tile of rows, whose sums over columns stay in registers, and walks the tiles of columns. The weights u of a tile go
//! through shared memory, where both warpgroups' rows meet, to the product for the sums over rows. These are staged, and a warp adds
//! them to what other blocks have added, in `f32` in scratch memory, in an order that depends on positions alone: each block waits for
//! the message of the block before it in this order, and the first one stores. A second kernel makes outputs of the sums.
//!
//! Blocks begin at different tiles, so that the block before has most often added its sums already: [`work`]. All blocks that wait for
//! one another run at once.

mod add;
mod copy;
mod finish;
mod outputs;
mod sums;
mod walk;
mod weigh;
mod work;

pub(super) use finish::{finish, heads};

use super::overlap::{COPIERS, WALKERS};
use super::parameters::{ADDERS, GROUP, SumsOver};
use super::{Flash, FlashKernel, Team};
use crate::abi::{Tensor, elem};
use crate::block::layout::Tile;
use crate::block::roles;
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::target::{Isa, WARP};
use crate::tile::{Memory, Operand, SharedId, SharedKind, Special, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// Rows of a block.
pub(super) const BLOCK_ROWS: u32 = 128;
/// Tiles of sums over rows that are staged at once.
const STAGED: u32 = 2;
/// Columns of a warpgroup's product for the sums over rows.
const ACROSS: u32 = 64;

/// Arrays in shared memory for sums over rows.
#[derive(Clone)]
pub(super) struct AcrossArrays {
    /// The weights, a row for each column of the tile.
    weights: Tile,
    /// The sums over rows of a tile, as threads have them.
    sums: SharedId,
    /// The mbarrier that says that both warpgroups have read the weights.
    weights_read: SharedId,
    /// The mbarriers that say that sums are staged, and that they may be staged again.
    staged: SharedId,
    unstaged: SharedId,
    /// The mbarriers that say of each tile of rows, and of each stage of each tile of columns, that its copies have landed.
    landed: Vec<SharedId>,
    /// The block's ticket, the launch's tag and the number of blocks.
    launch: SharedId,
    /// Of each warp that walks, whether it has found non-finite elements in the rows.
    non_finite: SharedId,
}

impl AcrossArrays {
    /// The tile of the weights.
    pub(super) fn weights(b: &mut Builder, stage: &Stage, form: &Pairwise, schedule: &Flash) -> Tile {
        let leaf = form.across.as_ref().map_or(0, |across| across.leaf.0);
        Tile::bare(b, "weights", elem(stage, Tensor::Param(leaf)), schedule.columns, BLOCK_ROWS)
    }

    pub(super) fn declare(b: &mut Builder, weights: Tile, schedule: &Flash, tiles: &[&Tile]) -> AcrossArrays {
        let sums = b.shared("row_sums", SharedKind::Elem(Elem::F32), STAGED * schedule.columns * schedule.depth);
        let [weights_read, staged, unstaged] = [("weights_read", 1), ("staged", STAGED), ("unstaged", STAGED)]
            .map(|(name, stages)| b.shared(name, SharedKind::Mbarrier, stages));
        let landed = |tile: &&Tile| b.shared(format!("{}_landed", tile.name), SharedKind::Mbarrier, schedule.stages);
        let landed = tiles.iter().map(landed).collect();
        let launch = b.shared("launch", SharedKind::Elem(Elem::U32), 3);
        let non_finite = b.shared("non_finite_rows", SharedKind::Elem(Elem::I32), schedule.warps);
        AcrossArrays { weights, sums, weights_read, staged, unstaged, landed, launch, non_finite }
    }
}

/// Whether a kernel can have the parameters.
pub(super) fn has_parameters(s: &Flash) -> bool {
    let block =
        s.warps == 2 * GROUP && s.repeat == 1 && s.depth == s.width && s.vector > 1 && !s.padded && s.blocks == 1;
    // Each warpgroup has 64 by 64 of the sums over rows.
    let tile = s.columns * s.depth == 2 * ACROSS * ACROSS && matches!(s.depth, 64 | 128);
    let of_walk = s.copiers == GROUP && s.persistent && !s.turns && s.slack == 0;
    block && tile && if s.sums == SumsOver::Both { of_walk } else { s.sums == SumsOver::Finish && s.copiers == 0 }
}

/// The parameters that a plan may choose.
pub(super) fn candidates(isa: Isa) -> Vec<Flash> {
    let of = |(depth, columns): (u32, u32)| Flash {
        warps: 2 * GROUP,
        repeat: 1,
        unit: Unit::Warpgroup,
        columns,
        depth,
        width: depth,
        padded: false,
        stages: 2,
        vector: 8,
        blocks: 1,
        copiers: GROUP,
        persistent: true,
        turns: false,
        slack: 0,
        sums: SumsOver::Both,
    };
    let all = [(64, 128), (128, 64)].map(of);
    if isa == Isa::Sm90a { all.to_vec() } else { vec![] }
}

impl FlashKernel<'_> {
    /// The arrays for sums over rows.
    fn arrays(&self) -> &AcrossArrays {
        self.across.as_ref().expect("a kernel of both sums has them")
    }

    /// Initialises the mbarriers and draws the block's ticket, by one thread.
    pub(super) fn start_across(&self, b: &mut Builder) {
        let (Some(arrays), Some(control)) = (&self.across, self.args.control) else { return };
        b.init_mbarriers(arrays.weights_read, 1, self.schedule.walkers());
        b.init_mbarriers(arrays.staged, STAGED, self.schedule.walkers());
        b.init_mbarriers(arrays.unstaged, STAGED, 1);
        arrays.landed.iter().for_each(|array| b.init_mbarriers(*array, self.schedule.stages, self.schedule.copying()));
        let [ticket, tag] = [0; 2].map(|_| b.reg(Ty::U32));
        b.push(Stmt::DrawTicket { ticket, tag, control });
        let blocks = b.special(Special::Blocks);
        let count = b.convert(Ty::U32, blocks);
        for (at, number) in [ticket.into(), tag.into(), count].into_iter().enumerate() {
            b.store(Memory::Shared(arrays.launch), Operand::i32(at as i32), &[number], None);
        }
        let number = b.convert(Ty::I32, ticket.into());
        let last = b.sub(blocks, 1);
        let is_last = b.eq(number, last);
        b.if_(is_last, |b| {
            let next = b.add(tag.into(), 1);
            b.push(Stmt::ResetTickets { control, tag: next });
        });
    }

    /// Divides the block in warps that walk, warps that copy and warps that add.
    pub(super) fn across_roles(&self, b: &mut Builder) {
        let Flash { warps, copiers, .. } = *self.schedule;
        let walks = b.lt(self.thread.warp, warps);
        let walk = |b: &mut Builder| {
            self.with_team(b, Team { first: 0, warps, repeat: 1, barrier: WALKERS }).walk_across(b);
        };
        let others = |b: &mut Builder| {
            let copies = b.lt(self.thread.warp, warps + copiers - ADDERS);
            let team = Team { first: warps, warps: copiers - ADDERS, repeat: 1, barrier: COPIERS };
            let add = |b: &mut Builder| {
                let first = b.eq(self.thread.lane, 0);
                b.if_(first, |b| self.add_across(b));
            };
            b.if_else(copies, |b| self.with_team(b, team).copy_across(b), add);
        };
        roles::divide(b, walks, self.schedule.registers(), walk, others);
    }

    /// The number of the warpgroup, `i32`.
    fn group(&self, b: &mut Builder) -> Operand {
        b.binary(Binary::Div, self.thread.warp, GROUP)
    }
}

/// Threads that have sums over rows.
const SUMMING: u32 = 2 * GROUP * WARP;
