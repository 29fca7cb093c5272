//! Matrix fragments: reading them from shared memory, and products of them.

use oplus_dsl::Elem;

use super::fault::Hit;
use super::lanes::{LANES, Lanes, Value, unpack};
use super::memory::size;
use super::pending::ROWS;
use super::run::{Flow, Run};
use super::view::View;
use crate::tile::{Memory, Operand, Reg, SharedId};

/// Rows of a matrix that is loaded, and columns of a result.
pub(super) const EIGHT: usize = 8;

/// Bytes of a row that is loaded.
const ROW_BYTES: usize = 16;

/// The coordinates of a lane in a fragment: lane / 4 and lane mod 4.
pub(super) fn place(lane: usize) -> (usize, usize) {
    (lane / 4, lane % 4)
}

impl Run<'_, '_> {
    pub(super) fn load_matrix(
        &mut self,
        dst: &[Reg],
        array: SharedId,
        index: Operand,
        transposed: bool,
    ) -> Result<Flow, Hit> {
        self.converged()?;
        let (at, memory) = (self.at(), Memory::Shared(array));
        let indices = self.indices(memory, index);
        let (mut view, who) = self.view(memory);
        let (bytes, rows) = (size(view.elem), rows(&view, &indices, dst.len())?);
        let mut values: [Lanes; 4] = [[0; LANES]; 4];
        for (m, lane) in (0..dst.len()).flat_map(|m| (0..LANES).map(move |lane| (m, lane))) {
            let (g, t) = place(lane);
            let row = |i: usize| rows[m * EIGHT + i];
            // The position of each half of a lane's register, and by how many bits the half is shifted there.
            let (first, second) = match (bytes, transposed) {
                (2, false) => ((row(g) + 2 * t, 0), Some((row(g) + 2 * t + 1, 0))),
                (2, true) => ((row(2 * t) + g, 0), Some((row(2 * t + 1) + g, 0))),
                (_, false) => ((row(g) + t, 0), None),
                (_, true) => ((row(2 * t) + g / 2, 16 * (g % 2)), Some((row(2 * t + 1) + g / 2, 16 * (g % 2)))),
            };
            let who = who.lane(lane);
            let mut raw = |(position, shift): (usize, usize)| {
                let raw = view.read_raw(&who, at, position).map_err(|hazard| Hit { lane, hazard })?;
                Ok(u64::from(raw) >> shift)
            };
            let low = raw(first)?;
            values[m][lane] = match second {
                Some(second) => (low & 0xffff) | (raw(second)? & 0xffff) << 16,
                None => low,
            };
        }
        for (reg, value) in dst.iter().zip(&values) {
            self.warp.assign(reg.0 as usize, value);
        }
        Ok(Flow::Next)
    }

    pub(super) fn store_matrix(
        &mut self,
        values: &[Operand],
        array: SharedId,
        index: Operand,
        transposed: bool,
    ) -> Result<Flow, Hit> {
        self.converged()?;
        let (at, memory) = (self.at(), Memory::Shared(array));
        let values: Vec<Lanes> = values.iter().map(|x| *self.value(*x)).collect();
        let indices = self.indices(memory, index);
        let (mut view, who) = self.view(memory);
        let rows = rows(&view, &indices, values.len())?;
        for (m, lane) in (0..values.len()).flat_map(|m| (0..LANES).map(move |lane| (m, lane))) {
            let (g, t) = place(lane);
            for half in 0..2 {
                let (i, k) = if transposed { (2 * t + half, g) } else { (g, 2 * t + half) };
                let (position, bits) = (rows[m * EIGHT + i] + k, (values[m][lane] >> (16 * half)) as u16);
                view.write_raw(&who.lane(lane), at, position, bits).map_err(|hazard| Hit { lane, hazard })?;
            }
        }
        Ok(Flow::Next)
    }

    pub(super) fn mma(
        &mut self,
        elem: Elem,
        dst: &[Reg; 4],
        a: &[Operand; 4],
        b: &[Operand; 2],
        c: &[Operand; 4],
    ) -> Result<Flow, Hit> {
        self.converged()?;
        let (a, b, c) = (a.map(|x| *self.value(x)), b.map(|x| *self.value(x)), c.map(|x| *self.value(x)));
        let (a, b) = (left(elem, &a), right(elem, &b));
        let (a, b) = (a.map(|row| row.map(f64::from)), across(&b));
        // Products of 16-bit numbers are exact in f64, and their sum nearly so.
        let mut sums = [[0.0; EIGHT]; ROWS];
        for (r, lane) in (0..dst.len()).flat_map(|r| (0..LANES).map(move |lane| (r, lane))) {
            let (row, column) = corner(r, lane);
            sums[row][column] = f64::from(f32::from_lane(c[r][lane]));
        }
        sums.iter_mut().zip(&a).for_each(|(sums, row)| add_products(sums, row, &b));
        for (r, reg) in dst.iter().enumerate() {
            let value: Lanes = std::array::from_fn(|lane| {
                let (row, column) = corner(r, lane);
                cut_off(sums[row][column]).to_lane()
            });
            self.warp.assign(reg.0 as usize, &value);
        }
        Ok(Flow::Next)
    }
}

/// The row and the column of a product in a lane's register.
pub(super) fn corner(register: usize, lane: usize) -> (usize, usize) {
    let (g, t) = place(lane);
    (g + EIGHT * (register / 2), 2 * t + register % 2)
}

/// The rows of a right factor of which the columns are given.
pub(super) fn across(columns: &[[f32; ROWS]]) -> [[f64; EIGHT]; ROWS] {
    std::array::from_fn(|k| std::array::from_fn(|column| f64::from(columns[column][k])))
}

/// Adds the products of a row and eight columns to sums, one after another.
#[inline]
pub(super) fn add_products(sums: &mut [f64; EIGHT], row: &[f64; ROWS], columns: &[[f64; EIGHT]; ROWS]) {
    for (x, factors) in row.iter().zip(columns) {
        sums.iter_mut().zip(factors).for_each(|(sum, y)| *sum += x * y);
    }
}

/// The positions of the rows of some matrices, which lanes name.
fn rows(view: &View, indices: &[i64; LANES], matrices: usize) -> Result<[usize; LANES], Hit> {
    let count = ROW_BYTES / size(view.elem);
    let mut rows = [0; LANES];
    for lane in 0..matrices * EIGHT {
        rows[lane] = view.locate(indices[lane], count, ROW_BYTES).map_err(|hazard| Hit { lane, hazard })?;
    }
    Ok(rows)
}

/// A sum as tensor cores keep it: the next `f32` toward zero.
fn cut_off(sum: f64) -> f32 {
    let nearest = sum as f32;
    if f64::from(nearest).abs() > sum.abs() && nearest.is_finite() {
        return f32::from_bits(nearest.to_bits() - 1);
    }
    nearest
}

/// The elements of a factor in a lane's register, low half first.
fn elements(elem: Elem, bits: u64) -> impl Iterator<Item = f32> {
    let bits = bits as u32;
    let (first, second) = match elem {
        Elem::F32 => (f32::from_bits(bits & !0x1fff), None),
        _ => (unpack(elem, bits), Some(unpack(elem, bits >> 16))),
    };
    std::iter::once(first).chain(second)
}

/// The rows of the left factor.
pub(super) fn left(elem: Elem, registers: &[Lanes; 4]) -> [[f32; ROWS]; ROWS] {
    let mut rows = [[0.0; ROWS]; ROWS];
    for (r, lane) in (0..4).flat_map(|r| (0..LANES).map(move |lane| (r, lane))) {
        let (g, t) = place(lane);
        let row = g + EIGHT * (r % 2);
        for (h, x) in elements(elem, registers[r][lane]).enumerate() {
            let column = if elem == Elem::F32 { t + 4 * (r / 2) } else { 2 * t + EIGHT * (r / 2) + h };
            rows[row][column] = x;
        }
    }
    rows
}

/// The columns of the right factor.
fn right(elem: Elem, registers: &[Lanes; 2]) -> [[f32; ROWS]; EIGHT] {
    let mut columns = [[0.0; ROWS]; EIGHT];
    for (r, lane) in (0..2).flat_map(|r| (0..LANES).map(move |lane| (r, lane))) {
        let (g, t) = place(lane);
        for (h, x) in elements(elem, registers[r][lane]).enumerate() {
            let row = if elem == Elem::F32 { t + 4 * r } else { 2 * t + EIGHT * r + h };
            columns[g][row] = x;
        }
    }
    columns
}
