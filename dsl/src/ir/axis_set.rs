//! Sets of axes.

use super::{Axis, AxisSet};

impl AxisSet {
    /// No axes.
    pub const EMPTY: AxisSet = AxisSet(0);

    /// The set of one axis.
    pub fn of(axis: Axis) -> AxisSet {
        AxisSet(1 << axis.0)
    }

    /// Whether the axis is in the set.
    pub fn contains(self, axis: Axis) -> bool {
        self.0 >> axis.0 & 1 == 1
    }

    /// Whether every axis of `other` is in the set.
    pub fn contains_all(self, other: AxisSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// The set with an axis added.
    #[must_use]
    pub fn with(self, axis: Axis) -> AxisSet {
        AxisSet(self.0 | 1 << axis.0)
    }

    /// The set with an axis taken out.
    #[must_use]
    pub fn without(self, axis: Axis) -> AxisSet {
        AxisSet(self.0 & !(1 << axis.0))
    }

    /// All axes of both.
    #[must_use]
    pub fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// The axes that `other` lacks.
    #[must_use]
    pub fn minus(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }

    /// Whether there is no axis.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many axes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The axes in order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Axis> {
        (0..64).filter(move |i| self.0 >> i & 1 == 1).map(Axis)
    }
}

impl FromIterator<Axis> for AxisSet {
    fn from_iter<I: IntoIterator<Item = Axis>>(axes: I) -> AxisSet {
        axes.into_iter().fold(AxisSet::EMPTY, AxisSet::with)
    }
}
