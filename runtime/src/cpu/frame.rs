//! Running tile programs.

mod combine;
mod load;
mod natively;
mod product;
mod weighted;

use std::collections::HashMap;
use std::ops::Range;

use super::CpuError;
use super::lanes::FirstElement;
use super::loops::{Loops, PerAxis};
use super::map;
use super::native::Scratch;
use super::nest::Nest;
use super::sums;
use super::sweep::{Kept, Workspace};
use super::tile::{Code, Combine, Guard, Instruction, Reg, TileOp, strides};
use super::values::{Slice, Values};
use super::view::Data;

/// The streamed axis: its place in the order, its size and its direction, and at multiples of how many indices it has
/// borders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Streamed {
    pub(super) axis: usize,
    pub(super) size: usize,
    pub(super) reverse: bool,
    pub(super) between: usize,
}

impl Streamed {
    /// Whether a visit begins at a border or is the first.
    pub(super) fn has_border(&self, visit: usize) -> bool {
        let index = if self.reverse { self.size - visit } else { visit };
        visit == 0 || index.is_multiple_of(self.between)
    }
}

/// A box of indices; along the streamed axis its start counts visits. What registers hold of it is in the order of indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tile {
    pub(super) starts: Vec<usize>,
    pub(super) extents: Vec<usize>,
}

/// How the scans of one level and above are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweeping {
    /// Streamed scans give results.
    Results,
    /// Streamed scans of a level give totals only; those below give results.
    Totals { level: usize },
}

/// How many truth values are compared before it is asked whether any differs.
const ANSWERS: usize = 1024;

/// The memory of one worker: what every register holds.
pub(super) struct Frame<'a> {
    code: &'a Code,
    sizes: &'a [usize],
    streamed: Option<Streamed>,
    sources: &'a [Data<'a>],
    slots: Vec<Slot<'a>>,
    workspace: Workspace,
    /// Memory of sweeps by machine code.
    pub(super) native: Option<Box<Scratch>>,
    /// The tile that the registers are about.
    pub(super) tile: Tile,
    /// Whether the tile begins at a border.
    pub(super) is_opening: bool,
    /// Whether the tile is the last of its chunk.
    pub(super) is_closing: bool,
    /// By instruction, the states of streamed scans after the chunk, where they are known before its results.
    pub(super) ends: HashMap<usize, Vec<Values>>,
    /// By instruction, the first elements of a chunk that [`Combine::opens`] leaves out of its totals.
    firsts: HashMap<usize, Vec<Values>>,
    /// By instruction and where a tile begins, what is found before its results.
    pub(super) totals: HashMap<(usize, usize), Found>,
    /// By instruction and where a tile begins, the elements in the order of visits, where the sweep for its totals has needed them so.
    pub(super) flipped: HashMap<(usize, usize), Vec<(Reg, Values)>>,
    /// The loops of every instruction for the extents of the tile.
    nests: Vec<Option<Nest>>,
}

/// The findings of the sweep of a tile for totals, which the sweep for results reads.
pub(super) struct Found {
    /// The totals of the tile's parts.
    totals: Vec<Values>,
    /// The elements, where they have been turned for groups.
    kept: Option<Kept>,
}

/// Memory of registers.
struct Slot<'a> {
    values: Values,
    /// Elements of a tensor that need neither gathering nor conversion.
    alias: Option<Slice<'a>>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(
        code: &'a Code,
        sizes: &'a [usize],
        streamed: Option<Streamed>,
        sources: &'a [Data<'a>],
    ) -> Frame<'a> {
        let mut slots: Vec<Slot<'a>> = vec![];
        for register in &code.registers {
            while slots.len() <= register.slot {
                slots.push(Slot { values: Values::empty(register.ty), alias: None });
            }
            if slots[register.slot].values.ty() != register.ty {
                slots[register.slot].values = Values::empty(register.ty);
            }
        }
        let nests = code.instructions.iter().map(|_| None).collect();
        let (workspace, tile) = (Workspace::default(), Tile::default());
        let (is_opening, is_closing) = (false, false);
        let (ends, firsts, totals, flipped) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Frame {
            code,
            sizes,
            streamed,
            sources,
            slots,
            workspace,
            native: None,
            tile,
            is_opening,
            is_closing,
            ends,
            firsts,
            totals,
            flipped,
            nests,
        }
    }

    /// Makes room for what the registers hold of tiles of that size.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn reserve(&mut self, tile: &[usize]) -> Result<(), CpuError> {
        for (number, register) in self.code.registers.iter().enumerate() {
            self.slots[register.slot].values.reserve(self.code.len(Reg(number), tile))?;
        }
        Ok(())
    }

    /// Goes to another tile.
    pub(super) fn go_to(&mut self, tile: &Tile) {
        if self.tile.extents != tile.extents {
            self.nests.fill_with(|| None);
        }
        self.tile.clone_from(tile);
    }

    /// The values of a register.
    pub(super) fn get(&self, register: Reg) -> Slice<'_> {
        let slot = &self.slots[self.code.registers[register.0].slot];
        slot.alias.unwrap_or_else(|| slot.values.from(0))
    }

    /// The memory of a register, to be written.
    pub(super) fn get_mut(&mut self, register: Reg) -> &mut Values {
        let slot = &mut self.slots[self.code.registers[register.0].slot];
        slot.alias = None;
        &mut slot.values
    }

    /// A copy of a register's values.
    pub(super) fn copy_of(&self, register: Reg) -> Result<Values, CpuError> {
        self.get(register).to(self.len(register)).to_values()
    }

    fn take(&mut self, register: Reg) -> Values {
        let values = self.get_mut(register);
        let ty = values.ty();
        std::mem::replace(values, Values::empty(ty))
    }

    /// Runs some instructions in order.
    pub(super) fn run(&mut self, instructions: &[usize], sweeping: Sweeping) -> Result<(), CpuError> {
        instructions.iter().try_for_each(|&at| self.execute(at, sweeping))
    }

    pub(super) fn execute(&mut self, at: usize, sweeping: Sweeping) -> Result<(), CpuError> {
        let code = self.code;
        let instruction = &code.instructions[at];
        match (&instruction.op, instruction.result) {
            (TileOp::Combine(combine), _) if combine.products.is_some() => {
                combine.products.iter().try_for_each(|products| self.add_tile(combine, products))?;
            }
            (TileOp::Combine(combine), _) => {
                let first = self.first(combine, sweeping);
                if first == FirstElement::Skipped {
                    self.keep_first(at, combine)?;
                }
                self.combine(at, combine, sweeping, first, None)?;
                if self.is_closing
                    && let Some(end) = self.ends.remove(&at)
                {
                    self.close(combine, &end)?;
                    self.ends.insert(at, end);
                }
            }
            (TileOp::Load(load), Some(result)) if load.gathered.is_empty() => self.load(load, result)?,
            (TileOp::Load(load), Some(result)) => self.gather(load, &instruction.operands, result)?,
            (TileOp::Select, Some(result)) => self.select(at, instruction, result)?,
            (TileOp::Capture { axis, position }, Some(result)) => self.capture(instruction, result, *axis, *position),
            (_, Some(result)) => self.write(at, instruction, result)?,
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, at: usize, instruction: &Instruction, result: Reg) -> Result<(), CpuError> {
        let mut dst = self.take(result);
        self.evaluate(at, instruction, result, &mut dst)?;
        *self.get_mut(result) = dst;
        Ok(())
    }

    /// Chooses element by element, or once where the whole tile has one answer, as of a shift away from the ends of its axis.
    fn select(&mut self, at: usize, instruction: &Instruction, result: Reg) -> Result<(), CpuError> {
        let n = self.len(result);
        let chosen = self.one_answer(instruction.operands[0]).map(|is| if is { 1 } else { 2 });
        let Some(k) = chosen.filter(|k| self.len(instruction.operands[*k]) == n) else {
            return self.write(at, instruction, result);
        };
        let chosen = instruction.operands[k];
        let [from, to] = [chosen, result].map(|register| self.code.registers[register.0].slot);
        if let Some(alias) = self.slots[from].alias {
            self.slots[to].alias = Some(alias);
            return Ok(());
        }
        if instruction.spent >> k & 1 == 1 {
            self.slots.swap(from, to);
            return Ok(());
        }
        let mut dst = self.take(result);
        dst.copy_from(self.get(chosen).to(n))?;
        *self.get_mut(result) = dst;
        Ok(())
    }

    /// The truth value that all of a register's are, if they are one.
    pub(super) fn one_answer(&self, condition: Reg) -> Option<bool> {
        let Slice::Bool(all) = self.get(condition).to(self.len(condition)) else { return None };
        let is = *all.first()?;
        all.chunks(ANSWERS).all(|some| some.iter().fold(true, |all, one| all & (*one == is))).then_some(is)
    }

    fn evaluate(
        &mut self,
        at: usize,
        instruction: &Instruction,
        result: Reg,
        dst: &mut Values,
    ) -> Result<(), CpuError> {
        if let TileOp::Sum(terms) = &instruction.op {
            let operands: Vec<Slice<'_>> = instruction.operands.iter().map(|operand| self.get(*operand)).collect();
            return sums::sum(terms, self.len(result), dst, &operands);
        }
        if self.nests[at].is_none() {
            self.nests[at] = Some(self.nest(instruction, result));
        }
        let operand = |k: usize| self.get(instruction.operands[k]);
        match (&instruction.op, self.nests[at].as_ref()) {
            (TileOp::Unary(op), Some(Nest::One(loops))) => map::unary(*op, loops, dst, operand(0)),
            (TileOp::Convert(elem), Some(Nest::One(loops))) => map::convert(*elem, loops, dst, operand(0)),
            (TileOp::Binary(op), Some(Nest::Two(loops))) => map::binary(*op, loops, dst, operand(0), operand(1)),
            (TileOp::Select, Some(Nest::Three(loops))) => map::select(loops, dst, operand(0), operand(1), operand(2)),
            (TileOp::Pick { axis, index }, Some(Nest::One(loops))) => {
                let along = self.strides(instruction.operands[0])[*axis] as usize;
                map::copy(loops, dst, operand(0).from(index * along))
            }
            (TileOp::Shift { axis, by }, _) => self.shift(instruction, result, *axis, *by, dst),
            (TileOp::Const(literal), _) => dst.fill(1, *literal),
            (TileOp::Index { axis, offset }, _) => self.index(*axis, *offset, dst),
            (TileOp::Guard(guard), _) => self.guard(*guard, dst),
            (TileOp::Product(product), _) => self.product(product, result, dst),
            (TileOp::Starts { axis }, _) => {
                let offsets = operand(0).to(self.len(instruction.operands[0]));
                map::starts(dst.room(self.tile.extents[*axis])?, offsets);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn nest(&self, instruction: &Instruction, result: Reg) -> Nest {
        let own = self.strides(result);
        let operands: Vec<PerAxis<isize>> =
            instruction.operands.iter().map(|register| self.strides(*register)).collect();
        let operands: Vec<&[isize]> = operands.iter().map(|strides| &strides[..]).collect();
        Nest::new(&self.tile.extents, self.axes(result), &own, &operands)
    }

    /// The axes of the tile over which a register varies.
    fn axes(&self, register: Reg) -> impl Iterator<Item = usize> + use<> {
        let (dims, rank) = (self.code.registers[register.0].dims, self.tile.extents.len());
        (0..rank).filter(move |k| dims >> k & 1 == 1)
    }

    /// The loops over the axes of a register.
    fn loops<const N: usize>(&self, register: Reg, strides: [&[isize]; N]) -> Loops<N> {
        self.loops_over(register, &self.tile.extents, strides).unit()
    }

    fn loops_over<const N: usize>(&self, register: Reg, extents: &[usize], strides: [&[isize]; N]) -> Loops<N> {
        Loops::new(self.axes(register).map(|k| (extents[k], strides.map(|strides| strides[k]))))
    }

    fn strides(&self, register: Reg) -> PerAxis<isize> {
        strides(self.code.registers[register.0].dims, &self.tile.extents)
    }

    /// The indices of the tile along an axis.
    pub(super) fn indices(&self, axis: usize) -> Range<usize> {
        let (start, n) = (self.tile.starts[axis], self.tile.extents[axis]);
        match self.streamed {
            Some(streamed) if streamed.axis == axis && streamed.reverse => {
                let end = streamed.size - start;
                end - n..end
            }
            _ => start..start + n,
        }
    }

    /// Whether a combination visits the indices of the tile from the last to the first.
    fn is_reversed(&self, combine: &Combine) -> bool {
        match self.streamed {
            Some(streamed) if combine.is_streamed => streamed.reverse,
            _ => combine.reverse,
        }
    }

    fn index(&self, axis: usize, offset: i64, dst: &mut Values) -> Result<(), CpuError> {
        let indices = self.indices(axis);
        let all = dst.room::<i64>(indices.len())?;
        all.iter_mut().zip(indices.start as i64..).for_each(|(x, t)| *x = t.wrapping_add(offset));
        Ok(())
    }

    /// The answers of a guard, which has one away from its bound.
    fn guard(&self, guard: Guard, dst: &mut Values) -> Result<(), CpuError> {
        let indices = self.indices(guard.axis);
        let all = dst.room::<bool>(indices.len())?;
        let start = indices.start as i64;
        match (indices.len(), guard.at(start)) {
            (0, _) => {}
            (n, first) if first == guard.at(start + n as i64 - 1) => all.fill(first),
            _ => all.iter_mut().zip(start..).for_each(|(is, t)| *is = guard.at(t)),
        }
        Ok(())
    }

    fn shift(
        &self,
        instruction: &Instruction,
        result: Reg,
        axis: usize,
        by: i64,
        dst: &mut Values,
    ) -> Result<(), CpuError> {
        let n = self.tile.extents[axis] as i64;
        let inside = by.clamp(0, n)..n.saturating_add(by).clamp(0, n);
        let total = self.len(result);
        dst.grow(total)?;
        let (value, fill) = (instruction.operands[0], instruction.operands[1]);
        if inside.is_empty() {
            self.copy_part(result, dst, axis, 0..n, fill, 0);
            return Ok(());
        }
        self.copy_part(result, dst, axis, 0..inside.start, fill, 0);
        self.copy_part(result, dst, axis, inside.end..n, fill, 0);
        self.copy_part(result, dst, axis, inside, value, by);
        Ok(())
    }

    /// Copies the part of a block whose indices along an axis lie in a range, from `by` earlier.
    fn copy_part(&self, result: Reg, dst: &mut Values, axis: usize, range: Range<i64>, from: Reg, by: i64) {
        let mut extents = self.tile.extents.clone();
        extents[axis] = (range.end - range.start) as usize;
        let (own, other) = (self.strides(result), self.strides(from));
        let at = [range.start as isize * own[axis], (range.start - by) as isize * other[axis]];
        map::place(&self.loops_over(result, &extents, [&own, &other]), dst, at, self.get(from));
    }

    fn capture(&mut self, instruction: &Instruction, result: Reg, axis: usize, position: usize) {
        let indices = self.indices(axis);
        if !indices.contains(&position) {
            return;
        }
        let from = instruction.operands[0];
        let (own, of_value) = (self.strides(result), self.strides(from));
        let loops = self.loops(result, [&own, &of_value]);
        let mut dst = self.take(result);
        let at = [0, (position - indices.start) as isize * of_value[axis]];
        map::place(&loops, &mut dst, at, self.get(from));
        *self.get_mut(result) = dst;
    }

    /// Fills a register from another one that may vary less.
    pub(super) fn broadcast(&mut self, result: Reg, from: Reg) -> Result<(), CpuError> {
        let loops = self.loops(result, [&self.strides(result), &self.strides(from)]);
        let mut dst = self.take(result);
        map::copy(&loops, &mut dst, self.get(from))?;
        *self.get_mut(result) = dst;
        Ok(())
    }

    /// How many elements a register has.
    pub(super) fn len(&self, register: Reg) -> usize {
        self.code.len(register, &self.tile.extents)
    }
}
