//! Segmented scans: `scan(L, segmented(Operator)(…), reset = flags)`, or `offsets = cu_seqlens`.
//!
//! `reset` is true at the elements before which the state is forgotten, in the order in which the scan visits them.
//! `offsets` is a sorted list of the indices at which segments begin, whatever the direction: in a reverse scan a segment
//! is entered at its last index.

use oplus_dsl::Ty;
use oplus_dsl::build::Direction;
use oplus_dsl::ir::{Axis, Literal, Operator, Value};
use oplus_dsl::segmented::segmented;
use oplus_dsl::typing::TypeError;

use super::Lower;
use super::arguments::Arguments;
use super::state::Applied;
use crate::mistake::Mistake;
use crate::syntax::Expr;

impl Lower<'_> {
    /// The flags of a segmented scan, `Some(None)` for a plain one.
    pub(super) fn segments(
        &mut self,
        axis: Option<Axis>,
        given: &Arguments,
        applied: Option<&Applied>,
        direction: Direction,
    ) -> Option<Option<Value>> {
        let (reset, offsets) = (given.key("reset"), given.key("offsets"));
        let applied = applied?;
        self.check_segments(given, applied)?;
        match (reset, offsets) {
            (Some(reset), _) => self.condition(reset).map(Some),
            (None, Some(offsets)) => self.entries(axis?, offsets, direction.reverse).map(Some),
            (None, None) => Some(None),
        }
    }

    fn check_segments(&mut self, given: &Arguments, applied: &Applied) -> Option<()> {
        let (reset, offsets) = (given.key_extent("reset"), given.key_extent("offsets"));
        let operator = applied.template.item.name.text.clone();
        let (extent, mistake) = match (applied.segmented, reset, offsets, given.key_extent("init")) {
            (_, Some(_), Some(at), _) => (at, Mistake::TwoSegmentations {}),
            (Some(_), _, Some(_), Some(at)) => (at, Mistake::InitWithOffsets {}),
            (Some(at), None, None, _) => (at, Mistake::NoSegments {}),
            (None, Some(at), ..) => (at, Mistake::SegmentsWithoutWrapper { argument: "reset".into(), operator }),
            (None, _, Some(at), _) => (at, Mistake::SegmentsWithoutWrapper { argument: "offsets".into(), operator }),
            _ => return Some(()),
        };
        self.report(extent, mistake);
        None
    }

    /// True where the scan enters a segment that `offsets` names.
    fn entries(&mut self, axis: Axis, offsets: &Expr, reverse: bool) -> Option<Value> {
        let value = self.one(offsets)?;
        let (ty, axes) = (self.ty(value), self.axes(value));
        let list = axes.iter().next().filter(|list| ty.is_int() && axes.len() == 1 && *list != axis);
        let Some(list) = list else {
            let found = format!("{ty} over {}", self.axes_in_words(axes));
            self.report(offsets.extent, Mistake::OffsetsAxes { found });
            return None;
        };
        // Whole numbers of any type are compared as they are.
        let offsets_of = self.builder.unconverted(value);
        let starts = self.builder.starts(axis, list, offsets_of);
        let starts = self.built(starts, offsets.extent)?;
        if !reverse {
            return Some(starts);
        }
        let end = self.constant(Literal::Bool(true), Ty::Bool, offsets.extent)?;
        let built = self.builder.shift(axis, -1, starts, end);
        self.built(built, offsets.extent)
    }

    /// The scan of the segmented operator, without its flag.
    pub(super) fn scan_segments(
        &mut self,
        axis: Axis,
        operator: &Operator,
        elements: &[Value],
        init: Option<&[Value]>,
        resets: Value,
        direction: Direction,
    ) -> Result<Vec<Value>, TypeError> {
        let id = self.builder.operator(segmented(operator)?);
        let off = self.builder.constant(Ty::Bool, Literal::Bool(false))?;
        let init = init.map_or(vec![], |init| [&[off], init].concat());
        let fields = self.builder.scan(axis, id, &[&[resets], elements].concat(), &init, direction)?;
        if !direction.exclusive {
            return Ok(fields[1..].to_vec());
        }
        // Exclusive: the state before a segment's first element is the identity, not the last segment's state.
        let kept = fields[1..].iter().zip(&operator.fields).zip(&operator.identity);
        kept.map(|((value, field), identity)| {
            let identity = self.builder.constant(field.ty, *identity)?;
            self.builder.select(resets, identity, *value)
        })
        .collect()
    }
}
