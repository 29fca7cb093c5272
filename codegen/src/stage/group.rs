//! Which roots are computed by one kernel.

use oplus_dsl::ir::{Axis, AxisSet, Op};

use super::course::Course;
use super::cutter::{Cutter, Root};
use super::family::families;

/// The most fields that one kernel carries if that can be avoided.
const MAX_FIELDS: usize = 12;

/// Roots that share a kernel.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Indices into the cutter's roots.
    pub roots: Vec<usize>,
    /// The course of the scans.
    pub home: Option<Course>,
    /// The axis of the positions.
    pub position: Option<Axis>,
    /// The axes of the iteration: of the roots, of the scan and of contractions.
    space: AxisSet,
    /// Whether a root has contractions.
    contracts: bool,
    level: u32,
}

/// Groups of roots, in order of execution.
///
/// Roots of one level over the same axes share a kernel when their scans run along the same axis in the same
/// direction; a map joins a scan over its axes that has no contractions. Final states over fewer axes join others if the cutter says so.
pub(super) fn group(cutter: &Cutter<'_>) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![];
    let (mut scans, maps): (Vec<usize>, Vec<usize>) =
        (0..cutter.roots.len()).partition(|r| cutter.roots[*r].home.is_some());
    if cutter.joins_narrower {
        scans.sort_by_key(|root| std::cmp::Reverse(cutter.roots[*root].axes.len()));
    }
    for root in scans {
        let own = Group::of(cutter, root);
        match groups.iter_mut().find(|g| g.takes(cutter, &own)) {
            Some(group) => {
                group.contracts |= own.contracts;
                group.roots.push(root);
            }
            None => groups.push(own),
        }
    }
    for root in maps {
        let own = Group::of(cutter, root);
        match groups.iter_mut().filter(|g| g.takes_map(cutter, &own)).min_by_key(|g| g.level) {
            Some(group) => {
                group.position = group.position.or(own.position);
                group.roots.push(root);
            }
            None => groups.push(own),
        }
    }
    groups.sort_by_key(|g| g.level);
    groups
}

impl Group {
    fn of(cutter: &Cutter<'_>, root: usize) -> Group {
        let Root { axes, home, position, contracted, level, .. } = &cutter.roots[root];
        let axes: AxisSet = axes.iter().copied().chain(contracted.iter()).collect();
        let axes = cutter.own_partial_axis(&cutter.roots[root]).map_or(axes, |part| axes.without(part));
        let space = home.map_or(axes, |course| axes.with(course.axis));
        let contracts = !contracted.is_empty();
        Group { roots: vec![root], home: *home, position: *position, space, contracts, level: *level }
    }

    /// Whether a root with a scan can join.
    fn takes(&self, cutter: &Cutter<'_>, other: &Group) -> bool {
        if (self.home, self.level) != (other.home, other.level) {
            return false;
        }
        let fields = |roots: &[usize]| families(cutter, roots).iter().map(|f| f.fields.len()).sum::<usize>();
        let both = || fields(&[&self.roots[..], &other.roots].concat());
        if self.space == other.space {
            let both = both();
            return both <= MAX_FIELDS || both == fields(&self.roots);
        }
        self.takes_narrower(cutter, other) && both() == fields(&self.roots)
    }

    /// Whether a root of final states over fewer axes can join those of this group, if the states are the same.
    fn takes_narrower(&self, cutter: &Cutter<'_>, other: &Group) -> bool {
        let keeps_final_states = |group: &Group| {
            let time = group.home.map(|course| course.axis);
            group.roots.iter().all(|root| time.is_some_and(|time| !cutter.roots[*root].axes.contains(&time)))
        };
        cutter.joins_narrower
            && !self.contracts
            && !other.contracts
            && other.space.iter().all(|axis| self.space.contains(axis))
            && keeps_final_states(self)
            && keeps_final_states(other)
    }

    /// Whether a root without a scan can join: nothing that runs before this group may read it.
    fn takes_map(&self, cutter: &Cutter<'_>, other: &Group) -> bool {
        let axis = self.home.map(|course| course.axis).or(self.position);
        let positions = other.position.is_none() || axis.is_none() || other.position == axis;
        let bare = self.home.map_or(self.space, |course| self.space.without(course.axis));
        let axes = other.space == self.space || other.space == bare;
        let unread = other.roots.iter().all(|r| !cutter.is_read(*r));
        let alone =
            |r: &usize| matches!(cutter.program.node(cutter.roots[*r].value).op, Op::Starts { .. } | Op::Gather { .. });
        let plain = self.home.is_none() || !other.roots.iter().any(alone);
        !self.contracts
            && positions
            && axes
            && plain
            && (self.level == other.level || (self.level > other.level && unread))
    }
}
