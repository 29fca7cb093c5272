//! Tiles of rows or columns in shared memory, as matrix fragments are read from them.
//!
//! A tile is divided along the axis within its rows into panels of at most 128 bytes, one panel after the other. The
//! 16-byte pieces of a panel's rows are swizzled. Fragments are two pieces deep, a *step*: 16 elements of 16 bits, or 8 of 32.

use crate::abi::{Tensor, elem};
use crate::build::{Builder, swizzle};
use crate::stage::Stage;
use crate::tile::{Operand, Panels, SharedId, SharedKind, Shuffle};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// Bytes of a piece.
const PIECE: u32 = 16;
/// Rows of a matrix, and half the rows of a fragment.
pub(super) const EIGHT: i32 = 8;

/// A parameter's tile, or several in a ring.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    /// The parameter.
    pub param: u32,
    /// Its axis along the tile.
    pub along: Axis,
    /// Its axis within rows.
    pub inner: Axis,
    /// The array of all stages.
    pub array: SharedId,
    /// The array of low parts, where elements are a high and a low part in `bf16`: `array` then has the high ones.
    pub low: Option<SharedId>,
    /// An mbarrier for each stage, which all threads arrive at; declared after all tiles.
    pub full: SharedId,
    /// The parameter's name.
    pub name: String,
    /// Rows.
    pub rows: u32,
    /// Elements of a row, a multiple of 16.
    pub depth: u32,
    /// The type of the elements.
    pub elem: Elem,
}

/// A stage of a tile.
#[derive(Clone, Copy)]
pub(crate) struct TileStage<'t> {
    pub tile: &'t Tile,
    /// The index of its first element.
    pub start: Operand,
}

impl<'t> TileStage<'t> {
    /// The stage of a tile of a number.
    pub(crate) fn of(b: &mut Builder, tile: &'t Tile, stage: Operand) -> TileStage<'t> {
        TileStage { tile, start: b.mul(stage, tile.len()) }
    }

    /// The only stage of a tile.
    pub(crate) fn only(tile: &'t Tile) -> TileStage<'t> {
        TileStage { tile, start: Operand::i32(0) }
    }
}

/// The contents of a tile.
#[derive(Clone, Copy)]
pub(crate) struct TileOf {
    /// The parameter.
    pub param: u32,
    /// Its axis along the tile.
    pub along: Axis,
    /// Its axis within rows.
    pub inner: Axis,
}

/// The lengths of a tile.
#[derive(Clone, Copy)]
pub(crate) struct TileShape {
    /// Rows.
    pub rows: u32,
    /// Elements of a row, a multiple of 16.
    pub depth: u32,
    /// The number of tiles in flight.
    pub stages: u32,
}

/// The indices at which a lane's rows of matrices begin, for every even piece of a panel's row.
#[derive(Clone, Debug)]
pub(crate) struct Lanes(Vec<Operand>);

impl Lanes {
    /// The indices in the stage of a tile that begins at `start`. All are made from the first one, which alone takes a register where the
    /// compiler has none to spare.
    pub(crate) fn in_stage(&self, b: &mut Builder, TileStage { tile, start }: TileStage) -> Lanes {
        let first = b.add(self.0[0], start);
        // A stage begins at a multiple of a panel's row, so pieces differ in bits that it does not change.
        let others = (1..self.0.len() as u32).map(|step| b.binary(Binary::Xor, first, step * tile.step()));
        Lanes([first].into_iter().chain(others).collect())
    }

    /// The lanes with a first index that compilers keep in one register: through a shuffle none sees the row and the piece that it is made
    /// of. All lanes of the warp are here.
    pub(crate) fn kept(&self, b: &mut Builder, lane: Operand) -> Lanes {
        let first = b.shuffle(Shuffle::Index, self.0[0], lane);
        Lanes([first].into_iter().chain(self.0[1..].iter().copied()).collect())
    }

    /// The indices in a memory where the tile begins at `first`, `i64`.
    pub(crate) fn in_memory(&self, b: &mut Builder, first: Operand) -> Lanes {
        let index = |place: &Operand| {
            let place = b.convert(Ty::I64, *place);
            b.add(first, place)
        };
        Lanes(self.0.iter().map(index).collect())
    }
}

impl Tile {
    /// Declares a tile of a parameter.
    pub(crate) fn declare(b: &mut Builder, stage: &Stage, of: TileOf, shape: TileShape) -> Tile {
        Tile::declare_as(b, stage, of, shape, elem(stage, Tensor::Param(of.param)))
    }

    /// Declares a tile of a parameter whose elements become those of another type.
    pub(crate) fn declare_as(b: &mut Builder, stage: &Stage, of: TileOf, shape: TileShape, elem: Elem) -> Tile {
        let TileOf { param, along, inner } = of;
        let TileShape { rows, depth, stages } = shape;
        let name = stage.program.params[param as usize].name.clone();
        // Every tile begins at a multiple of 1024 bytes, which the swizzle needs.
        let len = (rows * depth * stages).next_multiple_of(1024 / bytes(elem));
        let array = b.shared(format!("{name}_tile"), SharedKind::Elem(elem), len);
        Tile { param, along, inner, array, low: None, full: array, name, rows, depth, elem }
    }

    /// The tile with an array for low parts, of so many stages.
    pub(crate) fn in_parts(self, b: &mut Builder, stages: u32) -> Tile {
        let len = (self.len() * stages).next_multiple_of(1024 / bytes(self.elem));
        let low = b.shared(format!("{}_low", self.name), SharedKind::Elem(self.elem), len);
        Tile { low: Some(low), ..self }
    }

    /// The tile of the low parts, if there are any.
    pub(crate) fn low_part(&self) -> Option<Tile> {
        self.low.map(|array| Tile { array, low: None, ..self.clone() })
    }

    /// A tile that no parameter is copied to, of rows and elements of a row.
    pub(crate) fn bare(b: &mut Builder, name: &str, elem: Elem, rows: u32, depth: u32) -> Tile {
        Tile::bare_ring(b, name, elem, TileShape { rows, depth, stages: 1 })
    }

    /// A ring of tiles that no parameter is copied to.
    pub(crate) fn bare_ring(b: &mut Builder, name: &str, elem: Elem, shape: TileShape) -> Tile {
        let TileShape { rows, depth, stages } = shape;
        let array = b.shared(name, SharedKind::Elem(elem), rows * depth * stages);
        let (along, inner, name) = (Axis(0), Axis(0), name.to_owned());
        Tile { param: 0, along, inner, array, low: None, full: array, name, rows, depth, elem }
    }

    /// Elements of a row of a panel.
    pub(crate) fn panel(&self) -> u32 {
        (1 << self.depth.trailing_zeros()).min(128 / bytes(self.elem))
    }

    /// Elements of a piece.
    pub(crate) fn piece(&self) -> u32 {
        PIECE / bytes(self.elem)
    }

    /// Pieces of a row.
    pub(crate) fn pieces(&self) -> u32 {
        self.depth / self.piece()
    }

    /// The index of a piece of a row in a stage.
    pub(crate) fn piece_index(&self, b: &mut Builder, row: Operand, piece: Operand) -> Operand {
        let pieces = self.panel() / self.piece();
        let [panel, within] = b.div_rem(piece, pieces);
        let place = swizzle(b, row, within, pieces);
        let of_panel = b.mul(panel, self.rows * self.panel());
        let of_row = b.mul(row, self.panel());
        let of_piece = b.mul(place, self.piece());
        [of_row, of_piece].into_iter().fold(of_panel, |sum, x| b.add(sum, x))
    }

    /// Elements of a step.
    pub(crate) fn step(&self) -> u32 {
        2 * self.piece()
    }

    /// Elements of one stage.
    pub(crate) fn len(&self) -> u32 {
        self.rows * self.depth
    }

    /// The indices of lanes that name rows: lane l names row `row` and, of each step, the piece `half`.
    pub(crate) fn lanes(&self, b: &mut Builder, row: Operand, half: Operand) -> Lanes {
        let pieces = self.panel() / self.piece();
        let own = swizzle(b, row, half, pieces);
        let from = b.mul(row, self.panel());
        let place = |b: &mut Builder, even: u32| {
            let piece = b.binary(Binary::Xor, own, even);
            let within = b.mul(piece, self.piece());
            b.add(from, within)
        };
        Lanes((0..pieces).step_by(2).map(|even| place(b, even)).collect())
    }

    /// The indices of lanes that read single elements of 32 bits: of each step, element `column` of row `row`.
    pub(crate) fn lanes_of_elements(&self, b: &mut Builder, row: Operand, column: Operand) -> Lanes {
        let piece = Operand::i32(self.piece() as i32);
        let [half, within] = b.div_rem(column, piece);
        let Lanes(indices) = self.lanes(b, row, half);
        Lanes(indices.into_iter().map(|place| b.add(place, within)).collect())
    }

    /// The indices of lanes one row further, where rows are even.
    pub(crate) fn lanes_below(&self, b: &mut Builder, Lanes(indices): &Lanes) -> Lanes {
        Lanes(indices.iter().map(|place| self.below(b, *place)).collect())
    }

    /// The index of an element of 32 bits one row further, where the row is even.
    pub(crate) fn below(&self, b: &mut Builder, place: Operand) -> Operand {
        let panel = self.panel() as i32;
        // With eight pieces the last bit of the row is part of the swizzle.
        let is_swizzled = panel as u32 / self.piece() == EIGHT as u32;
        let beside = if is_swizzled { b.binary(Binary::Xor, place, self.piece()) } else { place };
        b.add(beside, panel)
    }

    /// The indices of lanes in a tile of one panel: of step number `step` of row `row`, the piece `half`.
    pub(crate) fn lanes_at(&self, b: &mut Builder, row: Operand, half: Operand, step: Operand) -> Operand {
        let own = swizzle(b, row, half, self.panel() / self.piece());
        let even = b.mul(step, 2);
        let piece = b.binary(Binary::Xor, own, even);
        let from = b.mul(row, self.panel());
        let within = b.mul(piece, self.piece());
        b.add(from, within)
    }

    /// The index of the lanes' rows in step number `step` of rows `first` on, a multiple of 8.
    pub(crate) fn index(&self, b: &mut Builder, lanes: &Lanes, first: u32, step: u32) -> Operand {
        let place = step * self.step();
        let (panel, even) = (place / self.panel(), place % self.panel() / self.step());
        let from = panel * self.rows * self.panel() + first * self.panel();
        b.add(lanes.0[even as usize], from)
    }

    /// The panels of the 16 elements number `sixteen` of rows from `row` on, as a warpgroup reads them: along rows, or
    /// transposed.
    pub(crate) fn panels(&self, b: &mut Builder, start: Operand, row: Operand, sixteen: u32) -> Panels {
        let panel = self.panel();
        let within = sixteen * 16 / panel * self.rows * panel + sixteen * 16 % panel;
        let of_row = b.mul(row, panel);
        let from = b.add(start, of_row);
        let index = b.add(from, within);
        Panels { array: self.array, index, row: panel, apart: self.rows * panel }
    }
}

/// Bytes of an element.
fn bytes(elem: Elem) -> u32 {
    elem.bytes().unwrap_or(4) as u32
}

/// The rows that lanes name of a fragment of 16 rows by 16 elements, read as a left factor; transposed, of a right one.
pub(crate) fn left_rows(b: &mut Builder, lane: Operand) -> (Operand, Operand) {
    let row = b.binary(Binary::Rem, lane, 2 * EIGHT);
    (row, b.binary(Binary::Div, lane, 2 * EIGHT))
}

/// The rows that lanes name of two fragments of 8 columns, which are the rows of a tile, by 16 elements.
pub(crate) fn right_rows(b: &mut Builder, lane: Operand) -> (Operand, Operand) {
    let low = b.binary(Binary::Rem, lane, EIGHT);
    let block = b.binary(Binary::Div, lane, 2 * EIGHT);
    let below = b.mul(block, EIGHT);
    let eighth = b.binary(Binary::Div, lane, EIGHT);
    let row = b.add(low, below);
    (row, b.binary(Binary::Rem, eighth, 2))
}
