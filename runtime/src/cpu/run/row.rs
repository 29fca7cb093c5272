//! One long row of `f32`: a running sum or a first-order linear recurrence from contiguous memory to contiguous memory.
//!
//! In such a stage nothing happens but the scan, so it needs no registers: a worker takes the next chunk, combines it
//! (which brings it into its cache), waits for the state before it, passes on the state after it, and writes the
//! results where they belong. Every tensor goes through memory once. Chunks are those of the stage, so the results do
//! not depend on the number of workers.

use std::sync::{Mutex, PoisonError};

use oplus_dsl::ir::Binary;

use crate::cpu::frame::Streamed;
use crate::cpu::kernel::Recurrence;
use crate::cpu::lanes::FirstElement;
use crate::cpu::linear::{self, Coefficient, Direction, Series};
use crate::cpu::lost::is_lost;
use crate::cpu::plan::{Stage, Store};
use crate::cpu::pool;
use crate::cpu::tile::{Combine, Reg, TileOp};
use crate::cpu::view::{Data, DataMut};

use super::carry::Carry;

/// Where a row lies: the tensor, and the element at which the row begins.
type At = (usize, usize);

/// The memory that a stage which scans one row reads and writes.
#[derive(Debug, PartialEq)]
pub(in crate::cpu) struct Row {
    /// Among the stage's sources.
    x: At,
    /// The coefficients among the stage's sources; none of a sum.
    coefficient: Option<At>,
    /// Among the targets.
    out: At,
    /// Targets of one element: where it goes, and the index of the row at which the result is taken.
    captures: Vec<(At, usize)>,
    len: usize,
    /// The length of a chunk.
    chunk: usize,
}

/// The elements of a row, or of a chunk of it.
#[derive(Clone, Copy)]
struct Elements<'a> {
    x: &'a [f32],
    coefficient: Option<&'a [f32]>,
}

impl Stage {
    /// The row that the stage scans, if it does nothing else and the row has several chunks.
    pub(in crate::cpu) fn row(&self) -> Option<Row> {
        let streamed = self.streamed.filter(|streamed| !streamed.reverse)?;
        let is_one_row = self.sizes.iter().enumerate().all(|(k, size)| k == streamed.axis || *size == 1);
        if !is_one_row || !self.is_shared || !linear::is_available() || !self.only_consts(&self.prologue) {
            return None;
        }
        let target = self.stores.iter().position(|store| !store.is_final)?;
        let result = self.stores[target].register;
        let (x, coefficient) = self.scanned(self.only_combine()?, result)?;
        let row = |element| self.row_of(element, streamed.axis);
        let others = self.stores.iter().enumerate().filter(|(k, _)| *k != target);
        Some(Row {
            x: row(x)?,
            coefficient: coefficient.map_or(Some(None), |c| row(c).map(Some))?,
            out: (target, self.stores[target].start_of_row(streamed)?),
            captures: others.map(|(k, store)| self.captured(k, store, result)).collect::<Option<_>>()?,
            len: streamed.size,
            chunk: self.task[streamed.axis],
        })
    }

    fn only_consts(&self, instructions: &[usize]) -> bool {
        instructions.iter().all(|at| matches!(self.code.instructions[*at].op, TileOp::Const(_)))
    }

    /// Where a store puts one element of the row, and which.
    fn captured(&self, target: usize, store: &Store, row: Reg) -> Option<(At, usize)> {
        let mut body = self.body.iter().map(|at| &self.code.instructions[*at]);
        let capture = body.find(|instruction| instruction.result == Some(store.register))?;
        match capture.op {
            TileOp::Capture { position, .. } if capture.operands[0] == row => {
                Some(((target, store.partition.start), position))
            }
            _ => None,
        }
    }

    /// The combination of a body that otherwise only loads and captures.
    fn only_combine(&self) -> Option<&Combine> {
        let mut only = None;
        for at in &self.body {
            match &self.code.instructions[*at].op {
                TileOp::Load(_) | TileOp::Capture { .. } => {}
                TileOp::Combine(combine) if only.is_none() => only = Some(&**combine),
                _ => return None,
            }
        }
        only
    }

    /// The elements and coefficients of an inclusive scan from the identity, if its result is the given register.
    fn scanned(&self, combine: &Combine, result: Reg) -> Option<(Reg, Option<Reg>)> {
        let field = combine.outputs.iter().position(|output| *output == Some(result))?;
        let is_plain = combine.is_streamed && !combine.opens && !combine.results.exclusive && combine.init.is_empty();
        let registers = &combine.elements[0];
        match combine.results.scan.recurrences.as_ref().filter(|_| is_plain)?[field]? {
            Recurrence::Fold { op: Binary::Add, element } => Some((registers[element], None)),
            Recurrence::Fold { .. } => None,
            Recurrence::Linear { coefficient, element } => Some((registers[element], Some(registers[coefficient]))),
        }
    }

    /// Where the elements of a register lie, if they are neighbours in memory.
    fn row_of(&self, register: Reg, axis: usize) -> Option<At> {
        let mut body = self.body.iter().map(|at| &self.code.instructions[*at]);
        let loading = body.find(|instruction| instruction.result == Some(register))?;
        let TileOp::Load(load) = &loading.op else { return None };
        let along = load.terms.iter().filter(|term| term.axis == axis).map(|term| term.stride).sum::<i64>();
        let is_shifted = load.terms.iter().any(|term| term.by != 0);
        (along == 1 && !is_shifted).then_some((load.source, load.base as usize))
    }
}

impl Store {
    /// The element at which a stage's only row begins, if its elements are neighbours in memory.
    fn start_of_row(&self, streamed: Streamed) -> Option<usize> {
        let place = self.partition.place(0);
        let (.., slices, elements) = place.strides.iter().find(|(axis, ..)| *axis == self.axes[streamed.axis])?;
        let is_plain = !self.is_final && (*slices, *elements) == (0, 1) && place.origin == (0, 0);
        is_plain.then_some(self.partition.start)
    }
}

impl Row {
    /// Scans the row with at most so many workers; `false` if its tensors do not hold `f32`.
    pub(super) fn run(&self, sources: &[Data<'_>], targets: &mut [DataMut<'_>], workers: usize) -> bool {
        let elements = |(source, start): At| match sources[source] {
            Data::F32(all) => Some(&all[start..][..self.len]),
            _ => None,
        };
        let coefficient = self.coefficient.map(elements);
        let (Some(x), true) = (elements(self.x), coefficient != Some(None)) else { return false };
        let Some(mut targets) = targets.iter_mut().map(singles).collect::<Option<Vec<_>>>() else { return false };
        let (out, start) = self.out;
        let elements = Elements { x, coefficient: coefficient.flatten() };
        elements.scan(&mut targets[out][start..][..self.len], self.chunk, workers);
        for ((target, at), position) in &self.captures {
            targets[*target][*at] = targets[out][start + position];
        }
        true
    }
}

/// The elements of a target, if they are `f32`.
fn singles<'t>(target: &'t mut DataMut<'_>) -> Option<&'t mut [f32]> {
    if let DataMut::F32(all) = target { Some(all) } else { None }
}

impl<'a> Elements<'a> {
    /// Writes the results of a row, with at most so many workers.
    fn scan(&self, out: &mut [f32], chunk: usize, workers: usize) {
        let most = workers.min(out.len().div_ceil(chunk));
        let chunks = Mutex::new(out.chunks_mut(chunk).enumerate());
        let carry = Carry::new(0.0);
        pool::together(most, || {
            loop {
                let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((number, out)) = next else { return };
                let is_whole = out.len() == chunk;
                self.part(number * chunk, out.len()).scan_chunk(number, is_whole, &carry, out);
            }
        });
    }

    fn part(&self, start: usize, len: usize) -> Elements<'a> {
        Elements { x: &self.x[start..][..len], coefficient: self.coefficient.map(|c| &c[start..][..len]) }
    }

    /// Writes the results of a chunk after taking the state before it. What a whole one passes on, that state combined
    /// with its total, is its last result too; where the total has lost the state, its last result is passed on. A chunk
    /// that is not whole is the last.
    fn scan_chunk(&self, number: usize, is_whole: bool, carry: &Carry, out: &mut [f32]) {
        let (product, total) = match self.coefficient {
            _ if !is_whole => (1.0, 0.0),
            None => (1.0, linear::sum_total(self.x)),
            Some(c) => linear::affine_total(Series::forward(Coefficient::Each(c), self.x)),
        };
        let before = carry.wait(number);
        let after = product * before + total;
        let is_known = is_whole && !is_lost(before, after);
        if is_known {
            carry.pass(number + 1, after);
        }
        let last = match self.coefficient {
            None => linear::sum(self.x, Direction::Forward, out, before),
            Some(c) => {
                let series = Series::forward(Coefficient::Each(c), self.x);
                linear::linear(series, out, before, FirstElement::Combined)
            }
        };
        match (is_whole, is_known) {
            (true, true) => out[out.len() - 1] = after,
            (true, false) => carry.pass(number + 1, last),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_and_many_give_the_same_bits() {
        let mut rng = oplus_dsl::rng::Rng::new(5);
        for len in [1, 64, 999, 1000, 1001, 100_003] {
            let mut numbers = || (0..len).map(|_| rng.below(1000) as f32 / 1000.0).collect::<Vec<f32>>();
            let (x, c) = (numbers(), numbers());
            for coefficient in [None, Some(&c[..])] {
                let scanned = |workers| {
                    let mut out = vec![f32::NAN; len];
                    Elements { x: &x, coefficient }.scan(&mut out, 1000, workers);
                    out.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
                };
                let alone = scanned(1);
                assert!((0..20).all(|_| scanned(8) == alone), "{len}");
                let last = x
                    .iter()
                    .enumerate()
                    .fold(0.0, |s, (t, x)| coefficient.map_or(1.0, |c| f64::from(c[t])) * s + f64::from(*x));
                assert!((f64::from(f32::from_bits(alone[len - 1])) - last).abs() <= 1e-6 * last + 1e-6, "{len}");
            }
        }
    }
}
