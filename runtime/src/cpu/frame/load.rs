//! Loading blocks of tensors.

use oplus_dsl::ir::Literal;

use crate::cpu::CpuError;
use crate::cpu::memory;
use crate::cpu::tile::{Load, Reg, Term};

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
        let is_whole = place.extents == self.tile.extents;
        if is_whole && let Some(alias) = memory::alias(&loops, n, source, place.at) {
            self.slots[self.code.registers[result.0].slot].alias = Some(alias);
            return Ok(());
        }
        let dst = self.get_mut(result);
        if !is_whole {
            dst.fill(n, Literal::zero(dst.ty()))?;
        }
        let own_at = (0..own.len()).map(|k| place.skipped[k] as isize * own[k]).sum();
        memory::load(&loops, dst, n, source, [own_at, place.at])
    }

    /// Which part of a tile lies in a tensor, and where.
    fn place(&self, load: &Load) -> Place {
        let rank = self.tile.extents.len();
        let mut place = Place {
            extents: self.tile.extents.clone(),
            skipped: vec![0; rank],
            strides: vec![0; rank],
            at: load.base as isize,
        };
        for term in &load.terms {
            self.place_term(term, &mut place);
        }
        place
    }

    fn place_term(&self, term: &Term, place: &mut Place) {
        let axis = term.axis;
        let (start, n, size) = (self.tile.starts[axis], self.tile.extents[axis], self.sizes[axis] as i64);
        let reverse = self.streamed.is_some_and(|streamed| streamed.axis == axis && streamed.reverse);
        let by = if reverse { term.by.saturating_neg() } else { term.by };
        let (start, end) = (start as i64, (start + n) as i64);
        let (low, high) = (start.max(by), end.min(size.saturating_add(by)));
        if low >= high {
            place.extents[axis] = 0;
            return;
        }
        place.extents[axis] = (high - low) as usize;
        place.skipped[axis] = (low - start) as usize;
        let (first, sign) = if reverse { (size - 1 - (low - by), -1) } else { (low - by, 1) };
        place.at += (first * term.stride) as isize;
        place.strides[axis] += (sign * term.stride) as isize;
    }
}

/// The part of a tile that lies in a tensor.
struct Place {
    extents: Vec<usize>,
    /// How many indices of the tile come before the part.
    skipped: Vec<usize>,
    strides: Vec<isize>,
    at: isize,
}
