//! Products of warpgroups: every warp computes its own 16 rows, from what it reads itself.

use oplus_dsl::Elem;

use super::fault::Hit;
use super::lanes::{LANES, Lanes, Value};
use super::matrix::{EIGHT, ROWS, left, place};
use super::run::{Flow, Run};
use crate::tile::{Left, Memory, Panels, Stmt};

/// Warps of a warpgroup.
const WARPS: usize = 4;

impl Run<'_, '_> {
    pub(super) fn warpgroup_mma(&mut self, stmt: &Stmt) -> Result<Flow, Hit> {
        let Stmt::WarpgroupMma { elem, sums, clear, steps, transposed } = stmt else { return Ok(Flow::Next) };
        self.converged()?;
        let mut totals: Vec<Lanes> = sums.iter().map(|r| *self.value((*r).into())).collect();
        if *clear {
            totals.fill([0; LANES]);
        }
        for (a, b) in steps {
            let a = self.left_rows(*elem, a)?;
            let b = self.columns(b, sums.len() * 2, *transposed)?;
            for (r, total) in totals.iter_mut().enumerate() {
                for (lane, sum) in total.iter_mut().enumerate() {
                    let (g, t) = place(lane);
                    let (row, column) = (g + EIGHT * (r % 4 / 2), r / 4 * EIGHT + 2 * t + r % 2);
                    let start = f64::from(f32::from_lane(*sum));
                    let products = a[row].iter().zip(&b[column]);
                    let exact = products.fold(start, |sum, (x, y)| sum + f64::from(*x) * f64::from(*y));
                    *sum = (exact as f32).to_lane();
                }
            }
        }
        for (reg, total) in sums.iter().zip(&totals) {
            self.warp.assign(reg.0 as usize, total);
        }
        Ok(Flow::Next)
    }

    /// The warp's rows of the left factor.
    fn left_rows(&mut self, elem: Elem, factor: &Left) -> Result<Vec<[f32; ROWS]>, Hit> {
        match factor {
            Left::Registers(registers) => {
                let registers = registers.map(|x| *self.value(x));
                Ok(left(elem, &registers).to_vec())
            }
            Left::Shared(panels) => {
                let first = self.warp.index % WARPS * ROWS;
                let row = |i: usize| std::array::from_fn(|k| (first + i, k));
                self.read_panels(panels, (0..ROWS).map(row).collect())
            }
        }
    }

    /// The columns of the right factor.
    fn columns(&mut self, panels: &Panels, columns: usize, transposed: bool) -> Result<Vec<[f32; ROWS]>, Hit> {
        let column = |i: usize| std::array::from_fn(|k| if transposed { (k, i) } else { (i, k) });
        self.read_panels(panels, (0..columns).map(column).collect())
    }

    /// The elements at places (row, place), 16 by 16.
    fn read_panels(&mut self, panels: &Panels, places: Vec<[(usize, usize); ROWS]>) -> Result<Vec<[f32; ROWS]>, Hit> {
        let (at, memory, first) = (self.at(), Memory::Shared(panels.array), i64::from(self.i32(panels.index, 0)));
        let (mut view, who) = self.view(memory);
        let mut rows = vec![];
        for (i, places) in places.into_iter().enumerate() {
            let lane = i % LANES;
            let mut row = [0.0; ROWS];
            for (to, (r, k)) in row.iter_mut().zip(places) {
                let index = panels.element(first, r as u32, k as u32);
                let hit = |hazard| Hit { lane, hazard };
                let position = view.locate(index, 1, 2).map_err(hit)?;
                *to = f32::from_lane(view.read_fenced(&who.lane(lane), at, position).map_err(hit)?);
            }
            rows.push(row);
        }
        Ok(rows)
    }
}
