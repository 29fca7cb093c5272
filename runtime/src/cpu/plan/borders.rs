//! Where the tiles of a call's scans begin.
//!
//! A sequence that is cut at these borders, each part starting from the last state of the one before, has the bits of the whole.
//! So the borders, what is combined between them, and how, may depend on everything but the length of the scanned axis: borders
//! are multiples of a power of two, counted from index 0 in both directions.

use oplus_dsl::ir::{Axis, AxisSet, Op, Program};

use super::Request;

/// The length of a part along contiguous memory, and how many elements a part has elsewhere.
pub(super) const PART: usize = 1 << 14;
/// The least length of a part.
const LEAST: usize = 32;
/// How many lanes a tile has where memory runs along another axis.
const LANES: usize = 512;
/// With fewer independent blocks than this, tasks share a scanned axis.
const BLOCKS: usize = 32;
/// The weight of a scanned axis where sizes are compared, whatever its length.
const LONG: usize = 1 << 20;

/// The work of a program along each of its axes.
#[derive(Debug)]
pub(super) struct Borders {
    /// The axes of scans.
    pub(super) scanned: AxisSet,
    /// The axes of scans along which most of memory runs.
    pub(super) along: AxisSet,
    /// The length of the parts that tasks share.
    parts: Vec<Option<usize>>,
}

impl Borders {
    pub(super) fn new(program: &Program, request: &Request, ordered: bool) -> Borders {
        let axes = || (0..program.axes.len()).map(|k| Axis(k as u32));
        let is_scan = |axis: Axis| move |op: &Op| matches!(op, Op::Scan { axis: own, .. } if *own == axis);
        let scanned = axes().filter(|axis| program.nodes.iter().any(|node| is_scan(*axis)(&node.op))).collect();
        let mut borders = Borders { scanned, along: AxisSet::EMPTY, parts: vec![] };
        borders.along = axes().filter(|axis| borders.is_along(*axis, program, request)).collect();
        let rows = |axis: Axis| {
            let scans = program.nodes.iter().filter(|node| is_scan(axis)(&node.op));
            let others = scans.map(|node| node.axes.without(axis).iter().map(|a| request.sizes[a.0 as usize]));
            others.map(|sizes| sizes.fold(1, usize::saturating_mul)).max()
        };
        borders.parts =
            axes().map(|axis| if ordered { None } else { part(rows(axis)?, borders.along.contains(axis)) }).collect();
        borders
    }

    /// The length of the parts of a scanned axis, if it has at least one and tasks share it.
    pub(super) fn part(&self, axis: Axis, sizes: &[usize]) -> Option<usize> {
        self.parts[axis.0 as usize].filter(|part| sizes[axis.0 as usize] >= *part)
    }

    /// At multiples of how many indices chunks of a scanned axis have the bits of the whole.
    pub(super) fn between(&self, axis: Axis) -> usize {
        self.parts[axis.0 as usize].unwrap_or(PART)
    }

    /// The size of an axis for comparisons that must not depend on a scanned axis's length.
    pub(super) fn size(&self, axis: Axis, sizes: &[usize]) -> usize {
        if self.scanned.contains(axis) { LONG } else { sizes[axis.0 as usize] }
    }

    /// Whether as much memory of the caller runs along a scanned axis as along any other.
    fn is_along(&self, axis: Axis, program: &Program, request: &Request) -> bool {
        let params = program.params.iter().zip(&request.inputs);
        let inputs = params.filter_map(|(param, layout)| Some((&param.axes, layout.as_ref()?)));
        let tensors: Vec<_> =
            inputs.chain(program.outputs.iter().map(|output| &output.axes).zip(&request.outputs)).collect();
        let weight = |of: Axis| {
            let along =
                |axes: &[Axis], strides: &[i64]| axes.iter().zip(strides).any(|(a, s)| *a == of && s.abs() == 1);
            let contiguous = tensors.iter().filter(|(axes, layout)| along(axes, &layout.strides));
            let sizes = contiguous.map(|(axes, _)| axes.iter().map(|a| self.size(*a, &request.sizes)));
            let total = sizes.map(|sizes| sizes.fold(1, usize::saturating_mul)).fold(0, usize::saturating_add);
            if self.size(of, &request.sizes) > 1 { total } else { 0 }
        };
        let own = weight(axis);
        let others = (0..program.axes.len()).map(|k| Axis(k as u32)).filter(|other| *other != axis);
        self.scanned.contains(axis) && own > 0 && others.map(weight).all(|other| own >= other)
    }
}

/// The length of the parts that tasks share, if a scan has so few rows or lanes that they must.
fn part(rows: usize, along: bool) -> Option<usize> {
    if along {
        return (rows < BLOCKS).then_some(PART);
    }
    let most = PART / rows.clamp(1, LANES);
    (rows.div_ceil(LANES) < BLOCKS).then_some((1 << most.ilog2()).max(LEAST))
}
