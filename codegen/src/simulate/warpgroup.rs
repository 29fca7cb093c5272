//! Products of warpgroups. Every warp computes its own 16 rows when it waits for the product, from the elements that shared memory
//! holds then; until then the sums are not numbers.

use oplus_dsl::Elem;

use super::fault::Hit;
use super::lanes::{LANES, Lanes, Value};
use super::matrix::{EIGHT, across, add_products, corner, left};
use super::pending::{Place, Product, ROWS, Rows};
use super::run::{Flow, Run};
use crate::tile::{Left, Memory, Panels, Reg, Stmt};

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
        let steps = steps.iter().map(|(a, b)| (self.rows(*elem, a), self.place_of(b))).collect();
        let unknown = [f32::NAN.to_lane(); LANES];
        sums.iter().for_each(|reg| self.warp.assign(reg.0 as usize, &unknown));
        self.warp.products.push_back(Product { sums: sums.clone(), totals, steps, transposed: *transposed });
        Ok(Flow::Next)
    }

    pub(super) fn warpgroup_wait(&mut self, pending: usize, sums: &[Reg]) -> Result<Flow, Hit> {
        self.converged()?;
        while self.warp.products.len() > pending {
            let Some(product) = self.warp.products.pop_front() else { break };
            let totals = self.totals(&product)?;
            self.warp.ended.extend(product.sums.into_iter().zip(totals));
        }
        let (named, unnamed) =
            std::mem::take(&mut self.warp.ended).into_iter().partition(|(reg, _)| sums.contains(reg));
        self.warp.ended = unnamed;
        let named: Vec<(Reg, Lanes)> = named;
        named.iter().for_each(|(reg, total)| self.warp.assign(reg.0 as usize, total));
        Ok(Flow::Next)
    }

    /// The sums after a product.
    fn totals(&mut self, product: &Product) -> Result<Vec<Lanes>, Hit> {
        let mut totals = product.totals.clone();
        for (a, b) in &product.steps {
            let a = self.left_rows(a)?;
            let b = self.columns(*b, totals.len() * 2, product.transposed)?;
            let a: Vec<[f64; ROWS]> = a.iter().map(|row| row.map(f64::from)).collect();
            // Four registers of a thread are eight columns.
            for (totals, b) in totals.chunks_exact_mut(4).zip(b.chunks_exact(EIGHT)) {
                let b = across(b);
                let mut sums = [[0.0; EIGHT]; ROWS];
                for (r, lane) in (0..4).flat_map(|r| (0..LANES).map(move |lane| (r, lane))) {
                    let (row, column) = corner(r, lane);
                    sums[row][column] = f64::from(f32::from_lane(totals[r][lane]));
                }
                sums.iter_mut().zip(&a).for_each(|(sums, row)| add_products(sums, row, &b));
                for (r, lane) in (0..4).flat_map(|r| (0..LANES).map(move |lane| (r, lane))) {
                    let (row, column) = corner(r, lane);
                    totals[r][lane] = (sums[row][column] as f32).to_lane();
                }
            }
        }
        Ok(totals)
    }

    fn place_of(&self, panels: &Panels) -> Place {
        (*panels, i64::from(self.i32(panels.index, 0)))
    }

    fn rows(&self, elem: Elem, factor: &Left) -> Rows {
        match factor {
            Left::Registers(registers) => {
                let registers = registers.map(|x| *self.value(x));
                Rows::Known(left(elem, &registers).to_vec())
            }
            Left::Shared(panels) => Rows::Shared(self.place_of(panels)),
        }
    }

    /// The warp's rows of the left factor.
    fn left_rows(&mut self, rows: &Rows) -> Result<Vec<[f32; ROWS]>, Hit> {
        match rows {
            Rows::Known(rows) => Ok(rows.clone()),
            Rows::Shared(factor) => {
                let first = self.warp.index % WARPS * ROWS;
                let row = |i: usize| std::array::from_fn(|k| (first + i, k));
                self.read_panels(*factor, (0..ROWS).map(row).collect())
            }
        }
    }

    /// The columns of the right factor.
    fn columns(&mut self, factor: Place, columns: usize, transposed: bool) -> Result<Vec<[f32; ROWS]>, Hit> {
        let column = |i: usize| std::array::from_fn(|k| if transposed { (k, i) } else { (i, k) });
        self.read_panels(factor, (0..columns).map(column).collect())
    }

    /// The elements at coordinates (row, place), 16 by 16.
    fn read_panels(
        &mut self,
        (panels, first): Place,
        places: Vec<[(usize, usize); ROWS]>,
    ) -> Result<Vec<[f32; ROWS]>, Hit> {
        let (at, memory) = (self.at(), Memory::Shared(panels.array));
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
