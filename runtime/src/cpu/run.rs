//! Running a stage: tasks on threads.
//!
//! A task is a block of the stage's indices. Where tasks share the streamed axis, each first combines its chunk to
//! totals, waits for the states before the chunk, passes on the states after it, and then goes through the chunk again
//! for the results; the second time its tensors are in the cache. Chunks are as long whatever the length of the axis, and
//! what a whole one passes on is also the last of its results. Its first element may be left out of its total and combined
//! by itself ([`FirstElement`](super::lanes::FirstElement)), as gradients need it that go on from a chunk's cotangent. Tasks are taken in
//! order, so the task that another waits for is running. Which thread runs a task changes nothing in what it computes.
//!
//! A stage that does nothing but scan one long row has a loop of its own ([`row`]).

mod carry;
mod row;
mod task;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};

use super::plan::{Stage, Store};
use super::tile::TileOp;
use super::view::{Data, DataMut, Parts, TaskParts};
use super::{CpuError, pool};
use carry::Chain;
use task::Task;

use crate::room::room;

/// With fewer elements than this (times instructions), other threads are not worth waking.
const SMALL: usize = 1 << 17;

/// A stage with its tensors.
struct Run<'a> {
    stage: &'a Stage,
    sources: &'a [Data<'a>],
    /// For every store, the slices of every task.
    parts: Vec<Vec<TaskParts<'a>>>,
    /// For every block, what its chunks pass on.
    chains: Vec<Chain>,
    /// How many blocks there are along every axis; one along the streamed axis.
    blocks: Vec<usize>,
    chunks: usize,
    next: AtomicUsize,
    /// Why a worker has given up.
    failure: OnceLock<CpuError>,
}

/// Runs a stage with at most so many workers; `targets` are the tensors of its stores, in order.
///
/// # Errors
/// [`CpuError::OutOfMemory`]; tasks may have written results by then.
pub(super) fn run_stage<'a>(
    stage: &'a Stage,
    sources: &'a [Data<'a>],
    mut targets: Vec<DataMut<'a>>,
    workers: usize,
) -> Result<(), CpuError> {
    if stage.row().is_some_and(|row| row.run(sources, &mut targets, workers)) {
        return Ok(());
    }
    let blocks: Vec<usize> = (0..stage.sizes.len()).map(|k| stage.blocks_along(k)).collect();
    let chunks = stage.chunks();
    let split = |(target, store): (DataMut<'a>, &'a Store)| target.split(store.partition.start, &store.partition);
    let count: usize = blocks.iter().product();
    let chained = if chunks > 1 { count } else { 0 };
    let mut chains = room(chained)?;
    for _ in 0..chained {
        chains.push(Chain::new(chunks, 1 + stage.passes.len())?);
    }
    let run = Run {
        stage,
        sources,
        parts: targets.into_iter().zip(&stage.stores).map(split).collect::<Result<_, _>>()?,
        chains,
        blocks,
        chunks,
        next: AtomicUsize::new(0),
        failure: OnceLock::new(),
    };
    let tasks = count * chunks;
    pool::together(if stage.is_small() { 1 } else { tasks.min(workers) }, || {
        if let Err(failure) = run.work(tasks) {
            run.give_up(failure);
        }
    });
    run.failure.into_inner().map_or(Ok(()), Err)
}

impl<'a> Run<'a> {
    /// Takes tasks until there are no more, or until a worker has given up.
    fn work(&self, tasks: usize) -> Result<(), CpuError> {
        let _guard = carry::Guard(&self.chains);
        let mut task: Option<Task<'_, '_>> = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= tasks || self.failure.get().is_some() {
                return Ok(());
            }
            let task = if let Some(task) = &mut task { task } else { task.insert(Task::new(self)?) };
            task.run(number / self.chunks, number % self.chunks)?;
        }
    }

    /// Ends the run: nobody takes another task, and nobody waits for what this worker's task would have passed on.
    fn give_up(&self, failure: CpuError) {
        self.failure.get_or_init(|| failure);
        self.chains.iter().for_each(Chain::break_off);
    }

    /// The slices that a task writes, once.
    fn take_parts(&self, store: usize, task: usize) -> Option<Parts<'a>> {
        let cell = self.parts.get(store)?.get(task)?;
        cell.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Stage {
    /// How many blocks tasks make along an axis; only parallel axes are cut into blocks. An empty axis has one, since what
    /// does not have the axis is to be written all the same.
    fn blocks_along(&self, axis: usize) -> usize {
        if self.parallel >> axis & 1 == 1 { self.sizes[axis].div_ceil(self.task[axis].max(1)).max(1) } else { 1 }
    }

    /// How many chunks the streamed axis has; one if it is empty or there is none.
    pub(super) fn chunks(&self) -> usize {
        self.streamed.map_or(1, |streamed| streamed.size.div_ceil(self.task[streamed.axis].max(1)).max(1))
    }

    /// The axes that it sums by products of matrices.
    pub(super) fn products(&self) -> impl Iterator<Item = usize> {
        self.code.instructions.iter().filter_map(|instruction| match &instruction.op {
            TileOp::Product(product) => Some(product.axis),
            TileOp::Combine(combine) if combine.products.is_some() => Some(combine.axis),
            _ => None,
        })
    }

    /// How many tasks there are.
    pub(super) fn tasks(&self) -> usize {
        (0..self.sizes.len()).map(|k| self.blocks_along(k)).product::<usize>() * self.chunks()
    }

    /// Whether other threads are not worth waking.
    pub(super) fn is_small(&self) -> bool {
        self.sizes.iter().fold(self.code.instructions.len(), |n, size| n.saturating_mul(*size)) < SMALL
    }
}
