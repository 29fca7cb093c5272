//! Segmented scans: `scan(L, segmented(Operator)(…), reset = flags)`, or `offsets = cu_seqlens`.
//!
//! `reset` is true at the elements before which the state is forgotten, in the order in which the scan visits them.
//! `offsets` is a sorted list of the indices at which segments begin, whatever the direction: in a reverse scan a segment
//! is entered at its last index.
//!
//! Where the list has one entry more than there are sequences, `offsets: i64[S + 1]`, each sequence may begin at a state of its
//! own, `init = h0` with `h0: state[S, …]`, and [`oplus_dsl::packed`] says how.

use oplus_dsl::Ty;
use oplus_dsl::build::Direction;
use oplus_dsl::ir::{Axis, Binary, Literal, MatrixScan, Operator, Value};
use oplus_dsl::packed::Packing;
use oplus_dsl::segmented::segmented;
use oplus_dsl::typing::TypeError;

use super::arguments::Arguments;
use super::state::Applied;
use super::{Lower, explain};
use crate::mistake::Mistake;
use crate::syntax::Expr;

/// The segments of a scan.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    /// True where the scan enters a segment.
    pub(super) resets: Value,
    /// Which elements are whose, where segments are sequences that are counted.
    packing: Option<Packing>,
}

impl Segments {
    /// The axis of the sequences that segments are, where these are counted.
    pub(super) fn sequences(&self) -> Option<Axis> {
        self.packing.map(|packing| packing.sequences())
    }
}

impl Lower<'_> {
    /// The segments of a scan, `Some(None)` for a plain one.
    pub(super) fn segments(
        &mut self,
        axis: Option<Axis>,
        given: &Arguments,
        applied: Option<&Applied>,
        direction: Direction,
    ) -> Option<Option<Segments>> {
        let (reset, offsets) = (given.key("reset"), given.key("offsets"));
        let applied = applied?;
        self.check_segments(given, applied)?;
        match (reset, offsets) {
            (Some(reset), _) => self.condition(reset).map(|resets| Some(Segments { resets, packing: None })),
            (None, Some(offsets)) => {
                let segments = self.entries(axis?, offsets, direction.reverse)?;
                let is_lost = given.key("init").is_some() && segments.packing.is_none();
                if let Some(at) = given.key_extent("init").filter(|_| is_lost) {
                    self.report(at, Mistake::InitWithOffsets {});
                    return None;
                }
                Some(Some(segments))
            }
            (None, None) => Some(None),
        }
    }

    fn check_segments(&mut self, given: &Arguments, applied: &Applied) -> Option<()> {
        let (reset, offsets) = (given.key_extent("reset"), given.key_extent("offsets"));
        let operator = applied.template.item.name.text.clone();
        let (extent, mistake) = match (applied.segmented, reset, offsets) {
            (_, Some(_), Some(at)) => (at, Mistake::TwoSegmentations {}),
            (Some(at), None, None) => (at, Mistake::NoSegments {}),
            (None, Some(at), _) => (at, Mistake::SegmentsWithoutWrapper { argument: "reset".into(), operator }),
            (None, _, Some(at)) => (at, Mistake::SegmentsWithoutWrapper { argument: "offsets".into(), operator }),
            _ => return Some(()),
        };
        self.report(extent, mistake);
        None
    }

    /// Where the scan enters the segments that `offsets` names.
    fn entries(&mut self, axis: Axis, offsets: &Expr, reverse: bool) -> Option<Segments> {
        let (list, value) = self.offsets(axis, offsets)?;
        let starts = self.builder.starts(axis, list, value);
        let starts = self.built(starts, offsets.extent)?;
        let packing = self.packing((axis, list), value, offsets)?;
        if !reverse {
            return Some(Segments { resets: starts, packing });
        }
        let end = self.constant(Literal::Bool(true), Ty::Bool, offsets.extent)?;
        let built = self.builder.shift(axis, -1, starts, end);
        Some(Segments { resets: self.built(built, offsets.extent)?, packing })
    }

    /// A list of offsets and its axis. Whole numbers of any type are compared as they are.
    fn offsets(&mut self, axis: Axis, offsets: &Expr) -> Option<(Axis, Value)> {
        let value = self.one(offsets)?;
        let (ty, axes) = (self.ty(value), self.axes(value));
        let list = axes.iter().next().filter(|list| ty.is_int() && axes.len() == 1 && *list != axis);
        let Some(list) = list else {
            let found = format!("{ty} over {}", self.axes_in_words(axes));
            self.report(offsets.extent, Mistake::OffsetsAxes { found });
            return None;
        };
        Some((list, self.builder.unconverted(value)))
    }

    fn packing(&mut self, (axis, list): (Axis, Axis), value: Value, offsets: &Expr) -> Option<Option<Packing>> {
        let packing = Packing::of(&mut self.builder, axis, list, value);
        packing.map_err(|error| self.report(offsets.extent, explain::mistake(&error))).ok()
    }

    /// The packing that a list of S + 1 offsets says.
    pub(super) fn sequences(&mut self, axis: Axis, offsets: &Expr) -> Option<Packing> {
        let (list, value) = self.offsets(axis, offsets)?;
        let packing = self.packing((axis, list), value, offsets)?;
        if packing.is_none() {
            self.report(offsets.extent, Mistake::OffsetsEnds {});
        }
        packing
    }

    /// A recurrence of matrices whose states are forgotten where segments begin.
    pub(super) fn matrix_segments(
        &mut self,
        mut scan: MatrixScan,
        init: Option<Value>,
        segments: Segments,
    ) -> Result<Value, TypeError> {
        let b = &mut self.builder;
        scan.reset = Some(segments.resets);
        let zero = b.float(b.ty(scan.decay)?, 0.0)?;
        let mut entered = None;
        if let (Some(packing), Some(states)) = (segments.packing, init) {
            // Each sequence's own state goes through the matrix of its first step, and is added with what that adds.
            let border = packing.border(b, scan.reverse)?;
            let (is_at, state) = (packing.is_at(b, border)?, packing.spread(b, border, states)?);
            let carried = b.matrix_step(&scan, state)?;
            let carried = b.select(is_at, carried, zero)?;
            (scan.input, scan.init) = (b.binary(Binary::Add, carried, scan.input)?, zero);
            entered = Some((is_at, state));
        }
        let exclusive = scan.exclusive;
        let states = b.matrix_scan(scan.clone())?;
        if !exclusive {
            return Ok(states);
        }
        let before = match entered {
            Some((is_at, state)) => b.select(is_at, state, zero)?,
            None => zero,
        };
        b.select(segments.resets, before, states)
    }

    /// The scan of the segmented operator, without its flag.
    pub(super) fn scan_segments(
        &mut self,
        axis: Axis,
        operator: &Operator,
        elements: &[Value],
        init: Option<&[Value]>,
        segments: Segments,
        direction: Direction,
    ) -> Result<Vec<Value>, TypeError> {
        let resets = segments.resets;
        let id = self.builder.operator(segmented(operator)?);
        let (packing, init) = (segments.packing.zip(init), init.filter(|_| segments.packing.is_none()));
        let mut elements = elements.to_vec();
        let mut entered = None;
        if let Some((packing, states)) = packing {
            let border = packing.border(&mut self.builder, direction.reverse)?;
            elements = packing.entered(&mut self.builder, border, operator, (states, &elements))?;
            entered = Some((packing, border, states));
        }
        let off = self.builder.constant(Ty::Bool, Literal::Bool(false))?;
        let init = init.map_or(vec![], |init| [&[off], init].concat());
        let fields = self.builder.scan(axis, id, &[&[resets], &elements[..]].concat(), &init, direction)?;
        if !direction.exclusive {
            return Ok(fields[1..].to_vec());
        }
        // Exclusive: the state before a segment's first element is its own or the identity, not the last segment's state.
        let kept = fields[1..].iter().zip(&operator.fields).zip(&operator.identity).enumerate();
        kept.map(|(k, ((value, field), identity))| {
            let mut before = self.builder.constant(field.ty, *identity)?;
            if let Some((packing, border, states)) = entered {
                let is_at = packing.is_at(&mut self.builder, border)?;
                let state = packing.spread(&mut self.builder, border, states[k])?;
                before = self.builder.select(is_at, state, before)?;
            }
            self.builder.select(resets, before, *value)
        })
        .collect()
    }
}
