//! The statements of the tile IR.

use super::{Expr, Left, Mbarrier, Memory, Operand, Panels, ParamId, Reg, SharedId, Shuffle};
use oplus_dsl::Elem;

/// One entry of a [`Stmt::Poll`]: words that travel together.
#[derive(Clone, Debug, PartialEq)]
pub struct PollEntry {
    /// Index of the first message word, `i64`; even when there are two or more words.
    pub index: Operand,
    /// The values, `u32`, assigned before the poll: it keeps those of entries that it does not read.
    pub values: Vec<Reg>,
    /// The tags that came with them, `u32`, assigned before; an entry is read while one of them differs from the
    /// poll's tag.
    pub tags: Vec<Reg>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// A register receives the value of a computation.
    Let(Reg, Expr),
    // ---- control flow
    /// Two-way branch.
    If {
        /// `bool`.
        condition: Operand,
        /// Executed where it is true.
        then: Vec<Stmt>,
        /// Executed where it is false.
        otherwise: Vec<Stmt>,
    },
    /// Counted loop: `var` = from, from + step, … while var < to. `var` is `i32` or `i64`; step > 0. The body assigns
    /// neither `var` nor the registers of `to` and `step`.
    For {
        /// The loop variable.
        var: Reg,
        /// First value.
        from: Operand,
        /// Bound, exclusive.
        to: Operand,
        /// Increment.
        step: Operand,
        /// The body.
        body: Vec<Stmt>,
    },
    /// Endless loop, left by `Break`.
    Loop(Vec<Stmt>),
    /// Leaves the innermost `Loop` where the condition is true.
    Break(Operand),
    // ---- memory
    /// Reads consecutive elements, one per register, or two where registers are packed.
    Load {
        /// Destination; registers of one type: of elements 1, 2, 4 or 8, together at most 16 bytes.
        dst: Vec<Reg>,
        /// The array.
        memory: Memory,
        /// Index of the first element.
        index: Operand,
        /// Reads only where it is true.
        guard: Option<Operand>,
        /// The value that the registers get where the guard is false.
        otherwise: Operand,
    },
    /// Writes consecutive elements, one per operand, or two where operands are packed.
    Store {
        /// The array.
        memory: Memory,
        /// Index of the first element.
        index: Operand,
        /// Values of one type: of elements 1, 2, 4 or 8, together at most 16 bytes.
        values: Vec<Operand>,
        /// Writes only where it is true.
        guard: Option<Operand>,
    },
    // ---- warps and blocks
    /// Each lane receives another lane's value. Warp-collective.
    Shuffle {
        /// Destination.
        dst: Reg,
        /// The value offered, of the same type; 4 or 8 bytes, or `bool`.
        value: Operand,
        /// The way in which `lane` names the source.
        mode: Shuffle,
        /// `i32`.
        lane: Operand,
    },
    /// Whether the condition holds in all lanes. Warp-collective.
    All {
        /// Destination, `bool`.
        dst: Reg,
        /// `bool`.
        condition: Operand,
    },
    /// Reads matrices of 8 rows of 16 bytes from shared memory as fragments. Warp-collective.
    LoadMatrix {
        /// One register per matrix, `u32`; 1, 2 or 4.
        dst: Vec<Reg>,
        /// An array of elements of 2 or 4 bytes.
        array: SharedId,
        /// In lane 8m + i the index of the first element of row i of matrix m, `i32`, at a multiple of 16 bytes. Lanes
        /// beyond the matrices do not matter.
        index: Operand,
        /// Gives the transposed matrices.
        transposed: bool,
    },
    /// Writes fragments to shared memory as matrices of 8 rows of 16 bytes. Warp-collective.
    StoreMatrix {
        /// One for each matrix, `u32`; 1, 2 or 4.
        values: Vec<Operand>,
        /// An array of elements of 2 bytes.
        array: SharedId,
        /// In lane 8m + i the index of the first element of row i of matrix m, as in [`Stmt::LoadMatrix`].
        index: Operand,
        /// Writes the transposed matrices.
        transposed: bool,
    },
    /// D = A·B + C on fragments. Warp-collective.
    Mma {
        /// The element type of A and B: `bf16`, `f16` or `f32`.
        elem: Elem,
        /// D, `f32`.
        dst: [Reg; 4],
        /// A, `u32`.
        a: [Operand; 4],
        /// B, `u32`.
        b: [Operand; 2],
        /// C, `f32`.
        c: [Operand; 4],
    },
    /// Starts adding the product of A, 64 × 16·steps, and B of as many rows. By all four warps of a warpgroup.
    WarpgroupMma {
        /// The element type of A and B: `bf16` or `f16`.
        elem: Elem,
        /// The sums: four `f32` for each 8 columns, of the warp's rows as in [`Stmt::Mma`]; up to 256 columns.
        sums: Vec<Reg>,
        /// The sums begin at zero.
        clear: bool,
        /// 16 columns of A and rows of B each.
        steps: Vec<(Left, Panels)>,
        /// B lies transposed.
        transposed: bool,
    },
    /// Waits until at most `pending` of the warpgroup's products have yet to end. By all four warps of a warpgroup.
    WarpgroupWait {
        /// The number that may be outstanding.
        pending: u32,
        /// The sums of products that end here, or have ended at waits that did not name them, which may be touched from then on; and other
        /// `f32` registers that are computed before it waits and read after.
        sums: Vec<Reg>,
    },
    /// Orders the memory accesses of a warp's lanes. Warp-collective.
    SyncWarp,
    /// Bounds the registers of each thread of the warp from here on: `more` than until now, which waits until other warps
    /// have given up theirs, or fewer. Those of a block have no more together than they began with. Warp-collective; the warps of four
    /// neighbours agree.
    SetMaxRegisters {
        /// A multiple of 8, 24 … 256.
        count: u32,
        /// Whether that is more than before.
        more: bool,
    },
    /// Waits for `threads` threads of the block and orders their shared accesses. `id` 0 is for the whole block.
    Barrier {
        /// 0 … 15.
        id: u32,
        /// A multiple of 32.
        threads: u32,
    },
    // ---- mbarriers and asynchronous copies
    /// Gives an mbarrier its number of arrivals per phase. By one thread, before [`Stmt::FenceInit`] and a barrier.
    MbarrierInit(Mbarrier, u32),
    /// Makes initialised mbarriers visible to asynchronous copies.
    FenceInit,
    /// One arrival; orders the thread's earlier accesses before what the waiters do.
    MbarrierArrive(Mbarrier),
    /// One arrival that also announces bytes (`i32`).
    MbarrierExpect(Mbarrier, Operand),
    /// Waits until the phase of that parity (`i32`, 0 or 1) has completed.
    MbarrierWait(Mbarrier, Operand),
    /// Copies `count` elements from global to shared memory by the copy engine. By one thread.
    BulkLoad {
        /// Destination array.
        to: SharedId,
        /// Destination element, `i32`.
        to_index: Operand,
        /// Source, of the same element type.
        from: ParamId,
        /// Source element, `i64`.
        from_index: Operand,
        /// Elements, `i32`; a multiple of 16 bytes.
        count: Operand,
        /// Where the bytes are counted.
        mbarrier: Mbarrier,
    },
    /// Copies `count` elements from shared to global memory by the copy engine, as one bulk group. By one thread.
    BulkStore {
        /// Destination.
        to: ParamId,
        /// Destination element, `i64`.
        to_index: Operand,
        /// Source array, of the same element type.
        from: SharedId,
        /// Source element, `i32`.
        from_index: Operand,
        /// Elements, `i32`; a multiple of 16 bytes.
        count: Operand,
        /// Adds them to the elements that are there, each sum rounded; elements of `f32` only.
        adds: bool,
    },
    /// Waits until at most `pending` of the thread's bulk groups have yet to read their source (`read`) or to complete.
    BulkWait {
        /// The number that may be outstanding.
        pending: u32,
        /// Wait only for the reading of shared memory.
        read: bool,
    },
    /// Orders the thread's earlier shared accesses before later asynchronous copies.
    FenceAsync,
    /// Orders accesses to global memory of different blocks, those of bulk stores that were waited for included: what the thread did
    /// before it, ahead of the messages that it publishes next; and what it does next, behind the messages that it has polled.
    FenceDevice,
    /// Starts a copy of `elements` (4, 8 or 16 bytes in all) from global to shared memory. Where the guard is false,
    /// zeros are written instead.
    CopyAsync {
        /// Destination array.
        to: SharedId,
        /// Destination element, `i32`.
        to_index: Operand,
        /// Source, of the same element type.
        from: ParamId,
        /// Source element, `i64`.
        from_index: Operand,
        /// The number of elements.
        elements: u32,
        /// `bool`.
        guard: Option<Operand>,
    },
    /// One arrival on an mbarrier when the thread's earlier `CopyAsync`s have landed.
    CopyAsyncArrive(Mbarrier),
    // ---- between blocks
    /// Draws a ticket: adds 1 to the control word (relaxed, gpu scope) and gives both halves of what it was.
    DrawTicket {
        /// The lower half, `u32`.
        ticket: Reg,
        /// The tag of the launch, `u32`.
        tag: Reg,
        /// A [`ParamKind::Control`](super::ParamKind::Control).
        control: ParamId,
    },
    /// Makes the control word ready for the next launch: ticket 0 and the given tag, in one store (relaxed, gpu scope). It must
    /// follow the launch's last draw.
    ResetTickets {
        /// A [`ParamKind::Control`](super::ParamKind::Control).
        control: ParamId,
        /// The tag of the next launch, `u32`.
        tag: Operand,
    },
    /// Writes message words, each with the tag (relaxed, gpu scope).
    Publish {
        /// A [`ParamKind::Messages`](super::ParamKind::Messages).
        messages: ParamId,
        /// Index of the first word, `i64`; even when there are two or more values.
        index: Operand,
        /// The values, `u32`.
        values: Vec<Operand>,
        /// `u32`.
        tag: Operand,
        /// Writes only where it is true.
        guard: Option<Operand>,
    },
    /// Reads once more every entry that still misses a tag; all reads are in flight together (relaxed, gpu scope).
    Poll {
        /// A [`ParamKind::Messages`](super::ParamKind::Messages).
        messages: ParamId,
        /// The entries to read.
        entries: Vec<PollEntry>,
        /// `u32`.
        tag: Operand,
    },
}
