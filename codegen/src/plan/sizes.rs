//! The numbers of elements and points of a call's tensors and stages, as products of sizes that may not overflow.

use super::{Call, Layout};
use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;

/// Points that a stage may have. Counts that are rounded up to whole tiles, or doubled, remain within 64 bits.
const MOST_POINTS: u64 = 1 << 62;

/// Elements of a tensor over these axes; `None` when 63 bits cannot count them, an empty axis counted as one element.
pub(super) fn count(call: &Call, axes: &[Axis]) -> Option<u64> {
    let product = product(axes.iter().map(|a| call.sizes[a.0 as usize]))?;
    let empty = axes.iter().any(|a| call.sizes[a.0 as usize] == 0);
    Some(if empty { 0 } else { product })
}

/// Bytes between the first and the last address of a tensor; `None` when 63 bits cannot count them.
pub(super) fn reach(call: &Call, axes: &[Axis], layout: &Layout, elem: Elem) -> Option<u64> {
    if axes.iter().any(|a| call.sizes[a.0 as usize] == 0) {
        return Some(0);
    }
    let bytes = elem.bytes().unwrap_or(8) as i128;
    let span = |(axis, stride): (&Axis, &i64)| i128::from(call.sizes[axis.0 as usize] - 1) * i128::from(*stride).abs();
    let reach = axes.iter().zip(&layout.strides).map(span).try_fold(0, i128::checked_add)?.checked_mul(bytes)?;
    i64::try_from(reach).ok().map(|reach| reach as u64)
}

/// Whether indices count the points of a stage with axes of these sizes.
pub(super) fn are_countable(sizes: impl Iterator<Item = i64>) -> bool {
    product(sizes).is_some_and(|points| points <= MOST_POINTS)
}

/// The size of an axis that is made of several.
pub(super) fn merged(call: &Call, group: &[Axis]) -> i64 {
    group.iter().map(|a| call.sizes[a.0 as usize]).fold(1, i64::saturating_mul)
}

/// The product of sizes, an empty axis counted as one element; `None` when 63 bits cannot count it.
fn product(sizes: impl Iterator<Item = i64>) -> Option<u64> {
    sizes.map(|size| size.max(1)).try_fold(1, i64::checked_mul).map(|n| n as u64)
}

/// Axes and their sizes in words.
pub(super) fn shape<'n>(axes: impl Iterator<Item = (&'n str, i64)>) -> String {
    axes.map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(", ")
}
