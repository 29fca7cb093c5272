//! An array as a statement sees it: bounds, alignment, history and contents in one place.

use oplus_dsl::Elem;

use super::fault::{Hazard, Party};
use super::memory::{read, size, write};
use super::program::Program;
use super::shadow::{Access, Accessor, By, Cell, Conflict};

/// The elements behind a memory, from the pointer on.
pub(super) struct View<'m> {
    pub names: Names<'m>,
    pub name: &'m str,
    pub elem: Elem,
    pub bytes: &'m mut [u8],
    /// Which elements were ever written; only global memory keeps it.
    pub written: Option<&'m mut [bool]>,
    /// Histories; only where threads may write.
    pub cells: Option<&'m mut [Cell]>,
    /// The element that the pointer names.
    pub offset: usize,
}

/// The names of accesses in messages.
#[derive(Clone, Copy)]
pub(super) struct Names<'m> {
    pub program: &'m Program<'m>,
    pub grid: [u32; 2],
}

impl Names<'_> {
    /// The coordinates of a block.
    pub(super) fn block(&self, number: u32) -> [u32; 2] {
        let columns = self.grid[0].max(1);
        [number % columns, number / columns]
    }

    fn party(&self, access: &Access) -> Box<Party> {
        let path = self.program.paths[access.at as usize].clone();
        let line = path.statement(self.program.kernel).map(|s| self.program.kernel.line(s)).unwrap_or_default();
        let lanes = if let By::Warp(warp) = access.by { Some((warp as usize, access.lanes)) } else { None };
        Box::new(Party { path, line, block: self.block(access.block), lanes })
    }
}

impl View<'_> {
    /// The position of `n` elements from an index on, if they are inside and at a multiple of `bytes`.
    pub(super) fn locate(&self, index: i64, n: usize, bytes: usize) -> Result<usize, Hazard> {
        let len = self.bytes.len() / size(self.elem) - self.offset;
        let outside = || Hazard::OutOfBounds { array: self.name.into(), index, len };
        let from = usize::try_from(index).map_err(|_| outside())?;
        if from.checked_add(n).is_none_or(|end| end > len) {
            return Err(outside());
        }
        let at = self.offset + from;
        if !(at * size(self.elem)).is_multiple_of(bytes) {
            return Err(Hazard::Misaligned { array: self.name.into(), index, bytes });
        }
        Ok(at)
    }

    /// A thread reads the element at a position.
    pub(super) fn read(&mut self, who: &Accessor, at: u32, position: usize) -> Result<u64, Hazard> {
        self.check(position, |cell| cell.read(who, at))?;
        Ok(read(self.elem, self.bytes, position))
    }

    /// A thread reads the element at a position as asynchronous copies do.
    pub(super) fn read_fenced(&mut self, who: &Accessor, at: u32, position: usize) -> Result<u64, Hazard> {
        self.check(position, |cell| cell.read_fenced(who, at))?;
        Ok(read(self.elem, self.bytes, position))
    }

    /// A thread reads the element at a position as the bits that memory holds.
    pub(super) fn read_raw(&mut self, who: &Accessor, at: u32, position: usize) -> Result<u32, Hazard> {
        self.check(position, |cell| cell.read(who, at))?;
        let bytes = &self.bytes[position * size(self.elem)..][..size(self.elem)];
        Ok(bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte)))
    }

    /// A thread reads the bits of two elements of 16 bits, the first in the low half.
    pub(super) fn read_pair(&mut self, who: &Accessor, at: u32, position: usize) -> Result<u64, Hazard> {
        let low = self.read_raw(who, at, position)?;
        let high = self.read_raw(who, at, position + 1)?;
        Ok(u64::from(low | high << 16))
    }

    /// A thread writes the bits of two elements of 16 bits, the first from the low half.
    pub(super) fn write_pair(&mut self, who: &Accessor, at: u32, position: usize, bits: u32) -> Result<(), Hazard> {
        self.write_raw(who, at, position, bits as u16)?;
        self.write_raw(who, at, position + 1, (bits >> 16) as u16)
    }

    /// A thread writes the element at a position.
    pub(super) fn write(&mut self, who: &Accessor, at: u32, position: usize, value: u64) -> Result<(), Hazard> {
        self.check_write(position, |cell| cell.write(who, at))?;
        write(self.elem, self.bytes, position, value);
        if let Some(written) = &mut self.written {
            written[position] = true;
        }
        Ok(())
    }

    /// A thread writes the 16 bits that memory holds of the element at a position.
    pub(super) fn write_raw(&mut self, who: &Accessor, at: u32, position: usize, bits: u16) -> Result<(), Hazard> {
        self.check_write(position, |cell| cell.write(who, at))?;
        self.bytes[2 * position..][..2].copy_from_slice(&bits.to_le_bytes());
        if let Some(written) = &mut self.written {
            written[position] = true;
        }
        Ok(())
    }

    /// Checks the history of an element that is read, and adds to it.
    pub(super) fn check(
        &mut self,
        position: usize,
        access: impl FnOnce(&mut Cell) -> Result<(), Conflict>,
    ) -> Result<(), Hazard> {
        match (&mut self.cells, &self.written) {
            (Some(cells), _) => access(&mut cells[position]).map_err(|c| self.hazard(position, c)),
            (None, Some(written)) if !written[position] => Err(self.hazard(position, Conflict::Unwritten)),
            _ => Ok(()),
        }
    }

    /// Checks the history of an element that is written, and adds to it.
    pub(super) fn check_write(
        &mut self,
        position: usize,
        access: impl FnOnce(&mut Cell) -> Result<(), Conflict>,
    ) -> Result<(), Hazard> {
        match &mut self.cells {
            Some(cells) => access(&mut cells[position]).map_err(|c| self.hazard(position, c)),
            None => Ok(()),
        }
    }

    fn hazard(&self, position: usize, conflict: Conflict) -> Hazard {
        let (array, index) = (self.name.to_string(), position - self.offset);
        match conflict {
            Conflict::Unwritten => Hazard::Unwritten { array, index },
            Conflict::Race(with) => Hazard::Race { array, index, with: self.names.party(&with) },
            Conflict::InFlight(with) => Hazard::InFlight { array, index, with: self.names.party(&with) },
            Conflict::Unfenced(with) => Hazard::Unfenced { array, index, with: self.names.party(&with) },
        }
    }
}
