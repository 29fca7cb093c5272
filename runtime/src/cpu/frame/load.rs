//! Loading blocks of tensors.

use std::ops::Range;

use crate::cpu::CpuError;
use crate::cpu::loops::PerAxis;
use crate::cpu::memory;
use crate::cpu::tile::{Load, Reg, Term};
use crate::cpu::values::Slice;

use super::Frame;

impl Frame<'_> {
    /// Loads a block, or lends the tensor's own memory where that is all that is needed.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn load(&mut self, load: &Load, result: Reg) -> Result<(), CpuError> {
        let place = self.place(load);
        let own = self.strides(result);
        let loops = self.loops_over(result, &place.extents, [&own, &place.strides]);
        let n = self.len(result);
        let source = self.sources[load.source];
        let is_whole = place.extents[..] == self.tile.extents[..];
        if is_whole && let Some(alias) = memory::alias(&loops, n, source, place.at) {
            self.slots[self.code.registers[result.0].slot].alias = Some(alias);
            return Ok(());
        }
        let own_at = (0..own.len()).map(|k| place.skipped[k] as isize * own[k]).sum();
        let dst = self.get_mut(result);
        let inside =
            if loops.is_one_run() && loops.step[0] == 1 { own_at as usize..own_at as usize + loops.run } else { 0..0 };
        if !is_whole {
            dst.fill_outside(n, inside, load.fill)?;
        }
        memory::load(&loops, dst, n, source, [own_at, place.at])
    }

    /// Loads a block whose index along some axes other registers say: for each of their values the block of the rest.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn gather(&mut self, load: &Load, indices: &[Reg], result: Reg) -> Result<(), CpuError> {
        let (n, own, rank) = (self.len(result), self.strides(result), self.tile.extents.len());
        let (place, source) = (self.place(load), self.sources[load.source]);
        let said = indices.iter().fold(0, |dims, index| dims | self.code.registers[index.0].dims);
        let axes: Vec<usize> = (0..rank).filter(|k| said >> k & 1 == 1).collect();
        let mut rest = place.extents.clone();
        axes.iter().for_each(|k| rest[*k] = rest[*k].min(1));
        let loops = self.loops_over(result, &rest, [&own, &place.strides]);
        let mut dst = self.take(result);
        dst.fill(n, load.fill)?;
        let skipped: isize = (0..rank).map(|k| place.skipped[k] as isize * own[k]).sum();
        let mut at = vec![0_usize; axes.len()];
        for _ in 0..axes.iter().map(|k| place.extents[*k]).product::<usize>() {
            let steps = || axes.iter().zip(&at).map(|(k, i)| (*k, *i));
            if let Some(there) = self.gathered(load, indices, steps().map(|(k, i)| (k, i + place.skipped[k]))) {
                let to: isize = steps().map(|(k, i)| i as isize * own[k]).sum();
                let from: isize = steps().map(|(k, i)| i as isize * place.strides[k]).sum();
                memory::load(&loops, &mut dst, n, source, [skipped + to, place.at + from + there])?;
            }
            for (i, k) in at.iter_mut().zip(&axes).rev() {
                *i += 1;
                if *i < place.extents[*k] {
                    break;
                }
                *i = 0;
            }
        }
        *self.get_mut(result) = dst;
        Ok(())
    }

    /// How far the elements lie that registers say at one index of some axes; `None` where there are none.
    fn gathered(
        &self,
        load: &Load,
        indices: &[Reg],
        at: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Option<isize> {
        let mut there = 0;
        for (gathered, register) in load.gathered.iter().zip(indices) {
            let strides = self.strides(*register);
            let place: isize = at.clone().map(|(k, i)| i as isize * strides[k]).sum();
            let Slice::I64(all) = self.get(*register) else { return None };
            let index = all[place as usize].checked_sub(gathered.by)?;
            let index = usize::try_from(index).ok().filter(|index| *index < gathered.size)?;
            there += index as isize * gathered.stride as isize;
        }
        Some(there)
    }

    /// Which part of a tile lies in a tensor, and where.
    pub(super) fn place(&self, load: &Load) -> Place {
        let rank = self.tile.extents.len();
        let mut place = Place {
            extents: PerAxis::from_slice(&self.tile.extents),
            skipped: PerAxis::from_elem(0, rank),
            strides: PerAxis::from_elem(0, rank),
            at: load.base as isize,
        };
        for term in &load.terms {
            self.place_term(term, &mut place);
        }
        place
    }

    fn place_term(&self, term: &Term, place: &mut Place) {
        let axis = term.axis;
        let (Range { start, end }, size, by) = (self.indices(axis), self.sizes[axis] as i64, term.by);
        let (start, end) = (start as i64, end as i64);
        let (low, high) = (start.max(by), end.min(size.saturating_add(by)));
        if low >= high {
            place.extents[axis] = 0;
            return;
        }
        place.extents[axis] = (high - low) as usize;
        place.skipped[axis] = (low - start) as usize;
        place.at += ((low - by) * term.stride) as isize;
        place.strides[axis] += term.stride as isize;
    }
}

/// The part of a tile that lies in a tensor.
pub(super) struct Place {
    pub(super) extents: PerAxis<usize>,
    /// How many indices of the tile come before the part.
    pub(super) skipped: PerAxis<usize>,
    pub(super) strides: PerAxis<isize>,
    pub(super) at: isize,
}
