//! One worker at one task.

mod natively;

use std::ops::Range;

use crate::cpu::frame::{Frame, Sweeping, Tile};
use crate::cpu::loops::{Loops, PerAxis};
use crate::cpu::native::Output;
use crate::cpu::partition::Place;
use crate::cpu::plan::{Stage, Store};
use crate::cpu::tile::{Combine, Reg, TileOp, strides};
use crate::cpu::values::Values;
use crate::cpu::view::Parts;
use crate::cpu::{CpuError, lost, memory};

use super::Run;
use super::carry::States;

/// A worker.
pub(super) struct Task<'r, 'a> {
    run: &'r Run<'a>,
    stage: &'a Stage,
    frame: Frame<'a>,
}

/// The slices that a store writes in a task.
struct Target<'a> {
    place: Place,
    parts: Option<Parts<'a>>,
}

/// The part of the streamed axis that a task goes through, in visits. Chunks begin at multiples of their size, counted
/// from index 0 in both directions.
#[derive(Clone, Copy)]
struct Chunk {
    block: usize,
    number: usize,
    start: usize,
    end: usize,
}

impl<'r, 'a> Task<'r, 'a> {
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn new(run: &'r Run<'a>) -> Result<Task<'r, 'a>, CpuError> {
        let stage = run.stage;
        let mut frame = Frame::new(&stage.code, &stage.sizes, stage.streamed, run.sources);
        frame.reserve(&stage.tile)?;
        Ok(Task { run, stage, frame })
    }

    /// Computes a chunk of a block.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn run(&mut self, block: usize, number: usize) -> Result<(), CpuError> {
        let (mut start, mut end) = (vec![0; self.stage.sizes.len()], self.stage.sizes.clone());
        let mut rest = block;
        for k in (0..end.len()).rev() {
            let blocks = self.run.blocks[k];
            if blocks > 1 {
                start[k] = rest % blocks * self.stage.task[k];
                end[k] = end[k].min(start[k] + self.stage.task[k]);
            }
            rest /= blocks;
        }
        let chunk = self.chunk(block, number);
        let mut targets = self.targets(&chunk);
        let mut tile = Tile { starts: start.clone(), extents: vec![0; end.len()] };
        loop {
            for (k, end) in end.iter().enumerate() {
                tile.extents[k] = self.stage.tile[k].min(end - tile.starts[k]);
            }
            self.go_along(&tile, chunk, &mut targets)?;
            let parallel = |k: &usize| self.stage.parallel >> k & 1 == 1;
            let more = |k: &usize| tile.starts[*k] + tile.extents[*k] < end[*k];
            let Some(k) = (0..end.len()).rev().filter(parallel).find(more) else { return Ok(()) };
            tile.starts[k] += tile.extents[k];
            (k + 1..end.len()).for_each(|inner| tile.starts[inner] = start[inner]);
        }
    }

    fn chunk(&self, block: usize, number: usize) -> Chunk {
        let Some(streamed) = self.stage.streamed else { return Chunk { block, number, start: 0, end: 0 } };
        let size = self.stage.task[streamed.axis].max(1);
        let index = if streamed.reverse { self.run.chunks - 1 - number } else { number };
        let (start, end) = (index * size, streamed.size.min((index + 1) * size));
        let (start, end) = if streamed.reverse { (streamed.size - end, streamed.size - start) } else { (start, end) };
        Chunk { block, number, start, end }
    }

    /// The indices of a chunk.
    fn indices(&self, chunk: &Chunk) -> Range<usize> {
        match self.stage.streamed {
            Some(streamed) if streamed.reverse => streamed.size - chunk.end..streamed.size - chunk.start,
            _ => chunk.start..chunk.end,
        }
    }

    fn targets(&self, chunk: &Chunk) -> Vec<Target<'a>> {
        let chunks = self.run.chunks;
        let target = |(k, store): (usize, &Store)| {
            let in_memory = match self.stage.streamed {
                Some(streamed) if streamed.reverse => chunks - 1 - chunk.number,
                _ => chunk.number,
            };
            let task = if store.is_final { chunk.block } else { chunk.block * chunks + in_memory };
            let is_due = !store.is_final || self.is_final_chunk(store, chunk);
            // Of tasks along an axis that the value does not have, the first one stores it.
            let parts = is_due.then(|| self.run.take_parts(k, task)).flatten().filter(|parts| !parts.is_empty());
            Target { place: store.partition.place(task), parts }
        };
        self.stage.stores.iter().enumerate().map(target).collect()
    }

    /// Whether a value that is known late is known after this chunk.
    fn is_final_chunk(&self, store: &Store, chunk: &Chunk) -> bool {
        let captures = self.stage.carried.iter().map(|at| &self.stage.code.instructions[*at]);
        let position =
            captures.filter(|capture| capture.result == Some(store.register)).find_map(|capture| match capture.op {
                TileOp::Capture { position, .. } => Some(position),
                _ => None,
            });
        match position {
            Some(position) => self.indices(chunk).contains(&position),
            None => chunk.number + 1 == self.run.chunks,
        }
    }

    /// Computes a chunk for one tile of the parallel axes.
    fn go_along(&mut self, tile: &Tile, chunk: Chunk, targets: &mut [Target<'a>]) -> Result<(), CpuError> {
        self.frame.go_to(tile);
        self.frame.run(&self.stage.prologue, Sweeping::Results)?;
        if self.stage.streamed.is_none() {
            self.frame.run(&self.stage.body, Sweeping::Results)?;
            self.store(targets, false, |_| false);
            return Ok(());
        }
        self.reset()?;
        if !self.stage.is_shared {
            self.stream(tile, chunk, &self.stage.body, Sweeping::Results, Some(targets))?;
        } else if self.stream_chunk(tile, chunk, targets)?.is_none() {
            return Ok(());
        }
        self.store(targets, true, |_| false);
        Ok(())
    }

    /// Puts everything that is carried before the first index.
    fn reset(&mut self) -> Result<(), CpuError> {
        for at in &self.stage.carried {
            let instruction = &self.stage.code.instructions[*at];
            match (&instruction.op, instruction.result) {
                (TileOp::Combine(combine), _) => self.frame.reset(combine)?,
                (_, Some(result)) => self.frame.broadcast(result, instruction.operands[1])?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Goes through a chunk tile by tile.
    fn stream(
        &mut self,
        tile: &Tile,
        chunk: Chunk,
        instructions: &[usize],
        sweeping: Sweeping,
        mut targets: Option<&mut [Target<'a>]>,
    ) -> Result<(), CpuError> {
        let Some(streamed) = self.stage.streamed else { return Ok(()) };
        let mut tile = tile.clone();
        let step = self.stage.tile[streamed.axis].max(1);
        let mut start = chunk.start;
        while start < chunk.end {
            // Tiles begin at multiples of their size, counted from index 0 in both directions.
            let left = chunk.end - start;
            let n = if streamed.reverse && !left.is_multiple_of(step) { left % step } else { step.min(left) };
            tile.starts[streamed.axis] = start;
            tile.extents[streamed.axis] = n;
            self.frame.go_to(&tile);
            self.frame.is_opening = streamed.has_border(start);
            self.frame.is_closing = n == left;
            self.visit(instructions, sweeping, targets.as_deref_mut())?;
            start += n;
        }
        Ok(())
    }

    /// Computes a tile, by machine code where there is some, and stores what is known of it.
    fn visit(
        &mut self,
        instructions: &[usize],
        sweeping: Sweeping,
        mut targets: Option<&mut [Target<'a>]>,
    ) -> Result<(), CpuError> {
        let stage = self.stage;
        if let Some(native) = stage.native.as_ref().filter(|native| native.takes(&self.frame.tile.extents)) {
            let gives_totals = targets.is_none() && sweeping == Sweeping::Totals { level: 1 };
            if gives_totals {
                return self.visit_natively(native, instructions, sweeping, None);
            }
            if let Some(targets) = &mut targets
                && let Some(memory) =
                    self.memory_of(native.memory(), targets, |k| native.outputs.contains(&Output::Store(k)))
            {
                self.visit_natively(native, instructions, sweeping, Some(memory))?;
                self.store(targets, false, |k| native.outputs.contains(&Output::Store(k)));
                return Ok(());
            }
        }
        if let Some(maps) = stage.maps.as_ref().filter(|maps| maps.takes(&self.frame.tile.extents))
            && let Some(targets) = &mut targets
            && let Some(memory) = self.memory_of(maps.memory(), targets, |k| maps.outputs.contains(&k))
            && maps.streams(self.frame.tile.extents.iter().product(), &memory)
        {
            self.visit_with_maps(maps, instructions, sweeping, memory)?;
            self.store(targets, false, |k| maps.outputs.contains(&k));
            return Ok(());
        }
        self.frame.run(instructions, sweeping)?;
        targets.iter_mut().for_each(|targets| self.store(targets, false, |_| false));
        Ok(())
    }

    /// Whether a chunk is one of those that the whole axis is cut into, and not what is left.
    fn is_whole(&self, chunk: Chunk) -> bool {
        self.stage.streamed.is_some_and(|streamed| chunk.end - chunk.start == self.stage.task[streamed.axis])
    }

    /// Goes through a chunk: if it is whole for totals, level by level, then for results. `None` if another worker has
    /// failed.
    ///
    /// The state behind a whole chunk is the one before it, combined with its total, and so are the last
    /// results: a call that ends there gives the state that a longer one goes on from. Where a total loses a state
    /// ([`lost`]), the chunk is gone through for results once more, and the state that these end with is passed on.
    fn stream_chunk(&mut self, tile: &Tile, chunk: Chunk, targets: &mut [Target<'a>]) -> Result<Option<()>, CpuError> {
        let stage = self.stage;
        let levels = 1 + stage.passes.len();
        let initial = (0..levels).map(|level| self.states(level)).collect::<Result<Vec<States>, _>>()?;
        let mut before: Vec<States> = vec![];
        self.frame.ends.clear();
        self.frame.totals.clear();
        self.frame.flipped.clear();
        self.frame.native.iter_mut().for_each(|scratch| scratch.clear());
        for (level, pass) in (1..levels).zip(&stage.passes) {
            if !self.is_whole(chunk) {
                let Some(known) = self.before(chunk, level, &initial[level])? else { return Ok(None) };
                before.push(known);
                continue;
            }
            (1..level).try_for_each(|below| self.put(below, &before[below - 1]))?;
            self.clear(level)?;
            self.stream(tile, chunk, pass, Sweeping::Totals { level }, None)?;
            let Some(known) = self.before(chunk, level, &initial[level])? else { return Ok(None) };
            before.push(known);
            let mut after = self.after(level, &before[level - 1])?;
            if self.has_lost(level, &before[level - 1], &after) {
                (1..=level).try_for_each(|own| self.put(own, &before[own - 1]))?;
                self.stream(tile, chunk, pass, Sweeping::Results, None)?;
                self.put_back(level, &before[level - 1], &mut after)?;
            }
            self.pass_on(chunk, level, &after)?;
            self.frame.ends.extend(self.combines(level).map(|(at, _)| at).zip(after));
        }
        (1..levels).try_for_each(|level| self.put(level, &before[level - 1]))?;
        self.stream(tile, chunk, &stage.body, Sweeping::Totals { level: 0 }, Some(targets))?;
        if !self.is_whole(chunk) {
            (1..levels).try_for_each(|level| self.pass_on(chunk, level, &self.states(level)?))?;
        }
        if self.combines(0).next().is_none() {
            return Ok(Some(()));
        }
        let Some(start) = self.before(chunk, 0, &initial[0])? else { return Ok(None) };
        let mut after = self.after(0, &start)?;
        if self.has_lost(0, &start, &after) {
            (1..levels).try_for_each(|level| self.put(level, &before[level - 1]))?;
            self.put(0, &start)?;
            self.stream(tile, chunk, &stage.body, Sweeping::Results, None)?;
            self.put_back(0, &start, &mut after)?;
        }
        self.pass_on(chunk, 0, &after)?;
        self.put(0, &after)?;
        Ok(Some(()))
    }

    /// Waits for the states before a chunk; `None` if another worker has failed.
    fn before(&self, chunk: Chunk, level: usize, initial: &States) -> Result<Option<States>, CpuError> {
        match chunk.number {
            0 => copies(initial).map(Some),
            number => Ok(self.run.chains[chunk.block].wait(number - 1, level)),
        }
    }

    /// The states after a chunk, whose totals the frame holds.
    fn after(&mut self, level: usize, before: &States) -> Result<States, CpuError> {
        let (totals, mut after) = (self.states(level)?, copies(before)?);
        for ((at, combine), (states, totals)) in self.combines(level).zip(after.iter_mut().zip(&totals)) {
            if let Some(native) = self.stage.native.as_ref().filter(|native| native.at == at)
                && self.frame.pass_natively(native, states, totals)?
            {
                continue;
            }
            self.frame.enter(at, combine, states)?;
            self.frame.merge(combine, states, totals)?;
        }
        Ok(after)
    }

    /// Whether totals of a level have lost states that were there before the chunk.
    fn has_lost(&self, level: usize, before: &States, after: &States) -> bool {
        let mut combines = self.combines(level).zip(before.iter().zip(after));
        combines.any(|((_, combine), (before, after))| lost::any(&combine.results.merge, before, after))
    }

    /// Puts the states with which the frame has gone through the chunk in place of those that its totals have lost.
    fn put_back(&self, level: usize, before: &States, after: &mut States) -> Result<(), CpuError> {
        let stepped = self.states(level)?;
        for (((_, combine), before), (after, stepped)) in
            self.combines(level).zip(before).zip(after.iter_mut().zip(&stepped))
        {
            lost::replace(&combine.results.merge, before, after, stepped);
        }
        Ok(())
    }

    /// Gives the next chunk the states after this one.
    fn pass_on(&self, chunk: Chunk, level: usize, after: &States) -> Result<(), CpuError> {
        if chunk.number + 1 < self.run.chunks {
            self.run.chains[chunk.block].publish(chunk.number, level, copies(after)?);
        }
        Ok(())
    }

    /// The streamed scans of a level; of level 0, the reductions.
    fn combines(&self, level: usize) -> impl Iterator<Item = (usize, &'a Combine)> + use<'a> {
        self.stage.carried_combines().filter(move |(_, combine)| combine.level == level)
    }

    fn states(&self, level: usize) -> Result<States, CpuError> {
        let state =
            |register: &Option<Reg>| register.map_or(Ok(Values::Bool(vec![])), |register| self.frame.copy_of(register));
        self.combines(level).map(|(_, combine)| combine.states.iter().map(state).collect()).collect()
    }

    fn put(&mut self, level: usize, states: &States) -> Result<(), CpuError> {
        for ((_, combine), states) in self.combines(level).zip(states) {
            for (register, values) in combine.states.iter().zip(states) {
                if let Some(register) = *register {
                    self.frame.get_mut(register).copy_from(values.from(0))?;
                }
            }
        }
        Ok(())
    }

    /// Makes the states of a level the identity.
    fn clear(&mut self, level: usize) -> Result<(), CpuError> {
        for (_, combine) in self.combines(level) {
            (0..combine.states.len()).try_for_each(|field| self.frame.reset_to_identity(combine, field))?;
        }
        Ok(())
    }

    /// Writes the values of a tile, or those that are known when the streamed axis is through, but for those that are stored already.
    fn store(&self, targets: &mut [Target<'a>], is_final: bool, is_stored: impl Fn(usize) -> bool) {
        for (k, (store, target)) in self.stage.stores.iter().zip(targets).enumerate() {
            if let (true, Some(parts)) = (store.is_final == is_final && !is_stored(k), &mut target.parts) {
                let (loops, at) = self.place(store, &target.place);
                memory::store(&loops, parts, at, self.frame.get(store.register));
            }
        }
    }

    /// Where the values of a tile go.
    fn place(&self, store: &Store, place: &Place) -> (Loops<3>, [isize; 2]) {
        let (tile, register) = (&self.frame.tile, &self.stage.code.registers[store.register.0]);
        let own = strides(register.dims, &tile.extents);
        let mut at = [place.origin.0, place.origin.1];
        let mut loops: PerAxis<(usize, [isize; 3])> = PerAxis::new();
        for (k, axis) in store.axes.iter().enumerate() {
            let Some((_, slices, elements)) = place.strides.iter().find(|(a, ..)| a == axis) else { continue };
            let first = self.frame.indices(k).start as isize;
            at = [at[0] + first * slices, at[1] + first * elements];
            loops.push((tile.extents[k], [own[k], *slices, *elements]));
        }
        (Loops::new(loops), at)
    }
}

/// Copies of all states.
fn copies(states: &States) -> Result<States, CpuError> {
    states.iter().map(|fields| Values::copies(fields)).collect()
}
