//! The sums of a block: in registers, or of `f32` in shared memory.
//!
//! Tensor cores cut off what does not fit a sum instead of rounding it, so that the errors of many steps have one sign. Sums
//! of `f32` over all columns are therefore in shared memory: the products of a tile begin at zero and are added to them
//! there, rounded. Every thread has its own elements of them, and its registers are free while it contracts.

use super::{COLUMNS, FlashKernel, ThreadTile};
use crate::block::layout::Tile;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Reg, SharedId, SharedKind};
use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

/// A thread's sums so far.
pub(super) struct Sums {
    /// The maximum of each of the thread's rows, in the units in which scores are compared.
    pub maximum: Vec<Reg>,
    /// The largest score of each row, where the maximum against which weights are taken may lag behind.
    pub highest: Vec<Reg>,
    /// The sums of every payload.
    pub payloads: Vec<PayloadSums>,
}

impl Sums {
    /// Sets sums in registers to their values before any column.
    pub(super) fn clear(&self, b: &mut Builder) {
        let nothing = Operand::Const(Ty::F32, Literal::Float(f64::NEG_INFINITY));
        self.maximum.iter().chain(&self.highest).for_each(|reg| b.assign(*reg, nothing));
        for sums in &self.payloads {
            let regs = match sums {
                PayloadSums::Rows(rows) => rows.clone(),
                PayloadSums::Blocks(_) => sums.registers(),
            };
            regs.iter().for_each(|reg| b.assign(*reg, zero(Ty::F32)));
        }
    }

    /// The registers that products add to.
    pub(super) fn registers(&self) -> Vec<Reg> {
        self.payloads.iter().flat_map(PayloadSums::registers).collect()
    }
}

impl PayloadSums {
    /// The registers that products add to.
    fn registers(&self) -> Vec<Reg> {
        match self {
            PayloadSums::Blocks(BlockSums::Registers(blocks)) => blocks.concat(),
            _ => vec![],
        }
    }
}

/// The sums of a payload.
pub(super) enum PayloadSums {
    /// The sums of a payload with a leaf, for each 16 × 8 block; blocks of 16 rows are side by side.
    Blocks(BlockSums),
    /// The sums of a payload without a leaf: the thread's part of the sum of each of its rows.
    Rows(Vec<Reg>),
}

/// The four sums of a thread in every block.
pub(super) enum BlockSums {
    /// Sums in registers.
    Registers(Vec<[Reg; 4]>),
    /// Sums in shared memory.
    Shared(SharedSums),
}

/// Sums in shared memory: those of a block side by side, thread by thread, block after block.
pub(super) struct SharedSums {
    array: SharedId,
    /// The index of the thread's first sum.
    first: Operand,
    /// Sums of all threads in a block.
    block: u32,
}

impl SharedSums {
    /// The index of a thread's sums in a block.
    fn index(&self, b: &mut Builder, block: u32) -> Operand {
        b.add(self.first, block * self.block)
    }

    /// Adds numbers to the sums of a block, which are first multiplied with `shrink`, if it is given.
    pub(super) fn add(&self, b: &mut Builder, block: u32, more: [Operand; 4], shrink: Option<[Operand; 4]>) {
        let (memory, index) = (Memory::Shared(self.array), self.index(b, block));
        let before = b.load(memory, index, 4, None, zero(Ty::F32));
        let sums: Vec<Operand> = (0..4)
            .map(|i| match shrink {
                Some(shrink) => b.fma(before[i], shrink[i], more[i]),
                None => b.add(before[i], more[i]),
            })
            .collect();
        b.store(memory, index, &sums, None);
    }

    /// Sets all sums to zero.
    fn clear(&self, b: &mut Builder, blocks: u32) {
        for block in 0..blocks {
            let index = self.index(b, block);
            b.store(Memory::Shared(self.array), index, &[zero(Ty::F32); 4], None);
        }
    }
}

/// One of a thread's sums: its block, and its number in the block.
#[derive(Clone, Copy)]
pub(super) struct SumOfThread {
    block: u32,
    number: u32,
}

impl BlockSums {
    /// One sum of a thread.
    pub(super) fn get(&self, b: &mut Builder, sum: SumOfThread) -> Operand {
        let SumOfThread { block, number } = sum;
        match self {
            BlockSums::Registers(blocks) => blocks[block as usize][number as usize].into(),
            BlockSums::Shared(sums) => {
                let index = sums.index(b, block);
                let index = b.add(index, number);
                b.load1(Memory::Shared(sums.array), index)
            }
        }
    }

    /// Adds to one sum of a thread.
    pub(super) fn add(&self, b: &mut Builder, sum: SumOfThread, more: Operand) {
        let SumOfThread { block, number } = sum;
        let before = self.get(b, sum);
        let sum = b.add(before, more);
        match self {
            BlockSums::Registers(blocks) => b.assign(blocks[block as usize][number as usize], sum),
            BlockSums::Shared(sums) => {
                let index = sums.index(b, block);
                let index = b.add(index, number);
                b.store(Memory::Shared(sums.array), index, &[sum], None);
            }
        }
    }
}

impl FlashKernel<'_> {
    /// Declares the shared memory for the sums of `f32` of every payload with a leaf.
    pub(super) fn declare_sums(&mut self, b: &mut Builder) {
        let is_f32 = self.elem() == Elem::F32;
        let leaves = self.form.payloads.iter().map(|p| p.leaf.filter(|_| is_f32));
        let tiles = leaves.map(|leaf| leaf.map(|(param, _)| self.column_tile(param)));
        let mut of_tile = |tile: &Tile| {
            let len = self.schedule.rows() * tile.depth;
            b.shared(format!("{}_sums", tile.name), SharedKind::Elem(Elem::F32), len)
        };
        self.shared_sums = tiles.map(|tile| tile.map(&mut of_tile)).collect();
    }

    /// Blocks of 16 × 8 sums of a payload in 16 rows.
    pub(super) fn blocks_of_rows(&self, param: u32) -> u32 {
        self.column_tile(param).depth / COLUMNS
    }

    /// The sum that its thread has in a row, of a block of 8 columns at the thread's column `c` of two.
    pub(super) fn sum_of_thread(&self, param: u32, row: u32, block: u32, c: u32) -> SumOfThread {
        SumOfThread { block: row / 2 * self.blocks_of_rows(param) + block, number: 2 * (row % 2) + c }
    }

    /// The sums before any column.
    pub(super) fn sums(&self, b: &mut Builder, thread_tile: ThreadTile) -> Sums {
        let nothing = Operand::Const(Ty::F32, Literal::Float(f64::NEG_INFINITY));
        let gauged = self.form.gauge.is_some();
        let maximum = (0..thread_tile.rows).filter(|_| gauged).map(|_| b.var(nothing)).collect();
        let lags = gauged && self.schedule.slack > 0;
        let highest = (0..thread_tile.rows).filter(|_| lags).map(|_| b.var(nothing)).collect();
        let first = b.mul(self.thread.number, 4);
        let payloads = self.form.payloads.iter().zip(&self.shared_sums).map(|(p, array)| match (p.leaf, *array) {
            (Some((param, _)), array) => {
                let blocks = self.blocks_of_rows(param) * self.schedule.repeat;
                let Some(array) = array else {
                    let block = |_| [0; 4].map(|_| b.var(zero(Ty::F32)));
                    return PayloadSums::Blocks(BlockSums::Registers((0..blocks).map(block).collect()));
                };
                let sums = SharedSums { array, first, block: 4 * self.schedule.threads() };
                sums.clear(b, blocks);
                PayloadSums::Blocks(BlockSums::Shared(sums))
            }
            (None, _) => PayloadSums::Rows((0..thread_tile.rows).map(|_| b.var(zero(Ty::F32))).collect()),
        });
        let payloads = payloads.collect();
        Sums { maximum, highest, payloads }
    }
}
