//! The common parts of persistent blocks: tickets, a ring of stages, and warps that meet at mbarriers.
//!
//! Every tile passes through a stage of the ring (`full`, `empty`) and through a slot of the small arrays. It is `drawn`, then
//! `reduced` and `published`; meanwhile it becomes `carried`, as the state before a tile is found while the tile itself is still
//! being loaded. Tile number i of a block uses stage i mod stages and slot i mod [`SLOTS`]; the tile
//! number −1 ends the stream. A slot is never used too early: the tile that uses it next is drawn into a stage that the
//! scanners have emptied, and they get to that stage only after the tile that used the slot before.
//!
//! Every lane of a warp that has read arrives for its own accesses. One arrival behind a warp barrier would do as well, but
//! compute-sanitizer's racecheck does not follow that.

mod roles;

use super::args::Args;
use super::carry::Fields;
use super::ring::{self, Ring, RingStage};
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Memory, Operand, ParamId, Reg, SharedId, SharedKind, Special, Stmt};
use oplus_dsl::{Elem, Ty};

/// Tiles of a block whose aggregates and carries may be alive at once; more than the ring has stages.
pub const SLOTS: u32 = 8;

/// The skeleton of a persistent block. Immutable while code is emitted.
pub struct Persistent {
    stages: u32,
    control: ParamId,
    /// Message words between blocks.
    pub messages: ParamId,
    /// Warp of the thread, `i32`.
    pub warp: Operand,
    /// Lane of the thread, `i32`.
    pub lane: Operand,
    /// Tiles of the launch, `i32`.
    pub tiles: Operand,
    /// A stage holds a tile.
    pub full: SharedId,
    /// A stage has been read by everyone.
    pub empty: SharedId,
    /// A slot holds a tile's number.
    pub drawn: SharedId,
    /// A slot holds the aggregates of a tile's spans.
    pub reduced: SharedId,
    /// A slot holds the scan of these; the tile's aggregate is published.
    pub published: SharedId,
    /// A slot holds the state before the tile.
    pub carried: SharedId,
    /// The tile in each stage.
    pub stage_tile: SharedId,
    /// The tile in each slot, from the reducers to the publisher.
    pub reduced_tile: SharedId,
    /// The tile in each slot, from the producer to the look-back.
    pub drawn_tile: SharedId,
    tag: SharedId,
}

/// The arrivals that complete a phase of each mbarrier.
pub struct Arrivals {
    /// Threads that fill a stage.
    pub full: u32,
    /// Warps that read it.
    pub empty: u32,
    /// Warps that reduce.
    pub reduced: u32,
    /// Warps that look back for a tile.
    pub carried: u32,
}

/// The position of a role in the stream of its block's tiles.
pub struct Cursor {
    /// Tiles handled, `i32`.
    pub count: Reg,
    /// The position in the ring of stages.
    pub(crate) ring: ring::Cursor,
}

impl Persistent {
    /// Declares the shared arrays.
    pub fn declare(b: &mut Builder, args: &Args, stages: u32, tiles: Operand) -> Persistent {
        let [warp, lane] = [Special::Warp, Special::Lane].map(|s| b.special(s));
        let [full, empty] = ["full", "empty"].map(|name| b.shared(name, SharedKind::Mbarrier, stages));
        let [drawn, reduced, published, carried] =
            ["drawn", "reduced", "published", "carried"].map(|name| b.shared(name, SharedKind::Mbarrier, SLOTS));
        let stage_tile = b.shared_values("stage_tile", Ty::I32, stages);
        let [drawn_tile, reduced_tile] =
            ["drawn_tile", "reduced_tile"].map(|name| b.shared_values(name, Ty::I32, SLOTS));
        let tag = b.shared("tag", SharedKind::Elem(Elem::U32), 1);
        let control = args.control.expect("the ABI of a schedule that looks back has a control word");
        let messages = args.messages.expect("the ABI of a schedule that looks back has message words");
        Persistent {
            stages,
            control,
            messages,
            warp,
            lane,
            tiles,
            full,
            empty,
            drawn,
            reduced,
            published,
            carried,
            stage_tile,
            drawn_tile,
            reduced_tile,
            tag,
        }
    }

    /// One thread prepares the block: it draws the first ticket and with it the launch's tag, initialises the mbarriers and lets
    /// `first` start the first tile, so that its copy is under way when the roles begin.
    pub fn start(
        &self,
        b: &mut Builder,
        thread: u32,
        arrivals: &Arrivals,
        first: impl FnOnce(&mut Builder, Operand),
    ) -> Reg {
        let ticket = b.var(Operand::u32(0));
        let own = b.special(Special::Thread);
        let chosen = b.eq(own, thread);
        b.if_(chosen, |b| {
            let tag = self.draw(b, ticket);
            self.init_mbarriers(b, arrivals);
            b.store(Memory::Shared(self.tag), Operand::i32(0), &[tag.into()], None);
            let tile = b.convert(Ty::I32, ticket.into());
            let exists = b.lt(tile, self.tiles);
            b.if_(exists, |b| first(b, tile));
        });
        b.barrier();
        ticket
    }

    fn init_mbarriers(&self, b: &mut Builder, arrivals: &Arrivals) {
        b.init_mbarriers(self.full, self.stages, arrivals.full);
        b.init_mbarriers(self.drawn, SLOTS, 1);
        b.init_mbarriers(self.empty, self.stages, arrivals.empty * WARP);
        b.init_mbarriers(self.reduced, SLOTS, arrivals.reduced * WARP);
        b.init_mbarriers(self.published, SLOTS, WARP);
        b.init_mbarriers(self.carried, SLOTS, arrivals.carried * WARP);
        b.push(Stmt::FenceInit);
    }

    /// Draws the next ticket; gives the tag of the launch.
    pub fn draw(&self, b: &mut Builder, ticket: Reg) -> Reg {
        let tag = b.reg(Ty::U32);
        b.push(Stmt::DrawTicket { ticket, tag, control: self.control });
        tag
    }

    /// Passes the number of the block's tile number `count` to the warps that look back.
    pub fn announce(&self, b: &mut Builder, count: Operand, tile: Operand) {
        let slot = self.slot(b, count).index;
        b.store(Memory::Shared(self.drawn_tile), slot, &[tile], None);
        b.arrive(self.drawn, slot);
    }

    /// After the launch's last draw, makes the control word ready for the next launch. Every block draws exactly one
    /// ticket that fails, so the last draw is known by its number.
    pub fn retire(&self, b: &mut Builder, tile: Operand) {
        let blocks = b.special(Special::Blocks);
        let draws = b.add(self.tiles, blocks);
        let last = b.sub(draws, 1);
        let last = b.eq(tile, last);
        b.if_(last, |b| {
            let tag = self.tag(b);
            let next = b.add(tag, 1);
            b.push(Stmt::ResetTickets { control: self.control, tag: next });
        });
    }

    /// The tag of the launch.
    pub fn tag(&self, b: &mut Builder) -> Operand {
        b.load1(Memory::Shared(self.tag), Operand::i32(0))
    }

    /// A cursor at the first tile; a producer's parity is one ahead.
    pub fn cursor(&self, b: &mut Builder, parity: i32) -> Cursor {
        Cursor { count: b.var(Operand::i32(0)), ring: Ring::cursor(b, Operand::i32(0), parity) }
    }

    /// Moves a cursor to the next tile.
    pub fn advance(&self, b: &mut Builder, at: &Cursor) {
        let count = b.add(at.count.into(), 1);
        b.assign(at.count, count);
        Ring::of(self.stages).advance(b, &at.ring);
    }

    /// The slot of a tile count, with the parity of its use.
    pub(crate) fn slot(&self, b: &mut Builder, count: Operand) -> RingStage {
        Ring::of_power(SLOTS).at(b, count)
    }

    /// Waits for the stage to be full and gives its tile.
    pub fn next_tile(&self, b: &mut Builder, at: &Cursor) -> Operand {
        b.wait(self.full, at.ring.here());
        b.load1(Memory::Shared(self.stage_tile), at.ring.stage.into())
    }

    /// One lane of the warp runs the statements.
    pub fn elected(&self, b: &mut Builder, body: impl FnOnce(&mut Builder)) {
        let first = b.eq(self.lane, 0);
        b.if_(first, body);
    }
}

/// Declares one array per field.
pub fn shared_fields(b: &mut Builder, name: &str, types: &[Ty], n: u32) -> Vec<SharedId> {
    types.iter().enumerate().map(|(k, ty)| b.shared_values(format!("{name}_{k}"), *ty, n)).collect()
}

/// Stores fields into arrays of fields.
pub fn store_fields(b: &mut Builder, arrays: &[SharedId], index: Operand, fields: &[Operand]) {
    for (array, value) in arrays.iter().zip(fields) {
        b.store(Memory::Shared(*array), index, &[*value], None);
    }
}

/// Loads fields from arrays of fields.
pub fn load_fields(b: &mut Builder, arrays: &[SharedId], index: Operand) -> Fields {
    arrays.iter().map(|array| b.load1(Memory::Shared(*array), index)).collect()
}
