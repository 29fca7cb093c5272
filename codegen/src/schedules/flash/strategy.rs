//! The flash schedule, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::AxisSet;

use super::across::heads;
use super::{Flash, SumsOver, candidates, cost, outer_axes};
use crate::schedules::Unit;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::pieces::Piece;
use crate::schedules::problem::Problem;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;
use crate::words::counted;

impl Strategy for Flash {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.pairwise().map(|_| ())
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<Flash> {
        match access {
            // Among them are those that copy single elements.
            Access::Vectors => candidates::of(stage, isa),
            Access::Singles => vec![],
            Access::Unmerged => candidates::of(stage, Isa::Sm80),
        }
    }

    fn kernels(&self, _stage: &Stage, _isa: Isa) -> Vec<Flash> {
        match self.sums {
            SumsOver::Both => {
                let finish = Flash { sums: SumsOver::Finish, copiers: 0, persistent: false, ..*self };
                vec![*self, finish]
            }
            _ => vec![*self],
        }
    }

    fn name(&self) -> &'static str {
        Flash::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, isa: Isa) -> Isa {
        // Only warpgroups need more than every device has.
        if self.unit == Unit::Warpgroup { isa } else { Isa::Sm80 }
    }

    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        stage.kind().pairwise().map(|form| form.inner.iter().copied().collect()).unwrap_or_default()
    }

    fn scratch(&self, _stage: &Stage) -> Vec<(&'static str, Elem)> {
        if self.sums == SumsOver::Columns { vec![] } else { vec![("row_sums", Elem::F32)] }
    }

    fn scratch_lens(&self, problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        if self.sums == SumsOver::Columns {
            return Some(vec![]);
        }
        let tile = u64::from(self.columns * self.depth);
        Some(vec![self.tiles_of_heads(problem)?.checked_mul(tile).filter(|len| i64::try_from(*len).is_ok())?])
    }

    fn looks_back(&self) -> bool {
        self.sums == SumsOver::Both
    }

    fn runs_at_once(&self) -> bool {
        self.sums == SumsOver::Both
    }

    fn message_words(&self, problem: &Problem<'_>) -> u64 {
        let Some(tiles) = self.tiles_of_heads(problem).filter(|_| self.looks_back()) else { return 0 };
        tiles.saturating_mul(self.row_tiles(problem))
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        Flash::threads(self)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let stage = problem.stage;
        let form = stage.kind().pairwise()?;
        let within = [self.depth].into_iter().chain(std::iter::repeat(self.width));
        for (axis, places) in form.inner.iter().zip(within) {
            let (size, places, vector) = (problem.size(*axis), i64::from(places), i64::from(self.vector));
            let wanted = match self.padded {
                true if size > places => Wanted::AtMost(places),
                false if size != places => Wanted::Exactly(places),
                _ if size % vector != 0 => Wanted::MultipleOf(vector),
                _ => continue,
            };
            return Err(Misfit::Size { axis: stage.program.axis_name(*axis).to_owned(), size, wanted });
        }
        let tiles = form.row_leaves().into_iter().chain(form.column_leaves());
        if tiles.into_iter().any(|(param, _)| !stage.views[param as usize].is_empty()) {
            return Err(Misfit::DisplacedTile);
        }
        if self.sums != SumsOver::Columns {
            problem.is_without_empty_axes()?;
            let (count, most) = (self.row_tiles(problem), u64::from(problem.target.multiprocessors));
            if count > most {
                return Err(Misfit::TooMany { count, what: "tiles of rows that add to the same sums" });
            }
        }
        // Rows and columns are counted together with those of a tile.
        let columns = form.grouped.map_or(1, |over| problem.size(over)).saturating_mul(problem.size(form.column));
        let longest = problem.size(form.row).max(columns);
        let most = i64::from(i32::MAX) - i64::from(self.rows().max(self.columns * self.stages));
        let count = longest as u64;
        if longest > most { Err(Misfit::TooMany { count, what: "rows or columns" }) } else { Ok(()) }
    }

    /// A block for each tile of rows of each outer point and part.
    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let Ok(form) = problem.stage.kind().pairwise() else { return 0 };
        if self.sums == SumsOver::Finish {
            return self.tiles_of_heads(problem).unwrap_or(u64::MAX);
        }
        let tiles = (problem.size(form.row) as u64).div_ceil(u64::from(self.rows()));
        problem.bound.count(outer_axes(form).iter().chain(problem.stage.partial_axis)).saturating_mul(tiles)
    }

    fn tiles(&self, problem: &Problem<'_>) -> Option<u64> {
        if self.sums == SumsOver::Both {
            // Whole gangs.
            let own = self.row_tiles(problem).max(1);
            let gangs = (u64::from(problem.target.multiprocessors) / own).max(1);
            return Some(gangs.min(self.blocks(problem) / own) * own);
        }
        self.persistent.then(|| self.blocks(problem))
    }

    /// The number of parts gives every place for a block one, but no part has fewer than two tiles of columns.
    fn partial_sums(&self, problem: &Problem<'_>) -> Option<u64> {
        let Ok(form) = problem.stage.kind().pairwise() else { return Some(1) };
        let parts = problem.stage.partial_axis.map_or(1, |part| problem.size(part).max(1) as u64);
        let own = self.blocks(problem) / parts;
        let tiles = (problem.size(form.column) as u64).div_ceil(u64::from(self.columns));
        let places = u64::from(problem.target.multiprocessors * self.blocks);
        Some((places / own.max(1)).min(tiles / 2).max(1))
    }

    fn cost(&self, problem: &Problem<'_>, _memory: &Memory) -> Cost {
        cost::estimate(self, problem)
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let Flash { columns, stages, .. } = *self;
        let parts =
            stage.partial_axis.map(|part| format!(", divided into {}", counted(sizes[part.0 as usize], "part")));
        let parts = parts.unwrap_or_default();
        format!("{} per block; tiles of {columns} columns{parts}, {stages} in flight", counted(self.rows(), "row"))
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let form = stage.kind().pairwise().ok();
        let along = form.map(|form| form.column);
        let within = form.map(|form| form.inner.iter().copied().chain(form.grouped).collect()).unwrap_or_default();
        let [length, across] = [self.columns, self.rows()].map(u64::from);
        Picture { along, within, length, across, tile: None, carry: Carry::Kept }
    }
}

impl Flash {
    /// The tiles of rows of an outer point.
    fn row_tiles(&self, problem: &Problem<'_>) -> u64 {
        let Ok(form) = problem.stage.kind().pairwise() else { return 0 };
        (problem.size(form.row) as u64).div_ceil(u64::from(self.rows()))
    }

    /// The tiles of columns of all outer points and query heads; `None` where 64 bits cannot count them.
    fn tiles_of_heads(&self, problem: &Problem<'_>) -> Option<u64> {
        let form = problem.stage.kind().pairwise().ok()?;
        let tiles = (problem.size(form.column) as u64).div_ceil(u64::from(self.columns));
        problem.bound.count(heads(form).iter()).checked_mul(tiles)
    }
}
