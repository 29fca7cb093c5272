//! Vector clocks: what has happened before what.

use std::collections::BTreeMap;

/// A sequence of operations that run one after the other: a stream, or a node of a launched graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(pub(crate) u64);

/// A point in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) lane: Lane,
    pub(crate) time: u64,
}

/// For every lane the last operation that has happened before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(BTreeMap<Lane, u64>);

impl Clock {
    /// Whether the operation has happened before.
    pub(crate) fn covers(&self, stamp: Stamp) -> bool {
        self.0.get(&stamp.lane).is_some_and(|time| *time >= stamp.time)
    }

    /// Adds what has happened before another point.
    pub(crate) fn join(&mut self, other: &Clock) {
        for (lane, time) in &other.0 {
            let own = self.0.entry(*lane).or_default();
            *own = (*own).max(*time);
        }
    }

    /// The next operation of a lane.
    pub(crate) fn advance(&mut self, lane: Lane) -> Stamp {
        let time = self.0.entry(lane).or_default();
        *time += 1;
        Stamp { lane, time: *time }
    }
}
