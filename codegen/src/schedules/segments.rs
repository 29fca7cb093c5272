//! Time cut into segments with blocks of their own, for recurrences whose states are summed away.

/// The segments of time that a schedule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Their number.
    pub count: u64,
    /// Tiles of each; the last one may have fewer.
    pub tiles: u64,
    /// Whether states are saved in one piece all the same, as the rows suffice for that.
    pub saves_whole: bool,
}

impl Segments {
    /// All tiles in one.
    pub(crate) fn one(tiles: u64) -> Segments {
        Segments { count: 1, tiles, saves_whole: false }
    }

    /// The segments of the passes that save states.
    pub(crate) fn saving(self) -> Segments {
        if self.saves_whole { Segments::one(self.tiles * self.count) } else { self }
    }

    /// The fastest of at least two, where there are tiles for them: one segment is what the schedule without them is for.
    pub(crate) fn fastest(tiles: u64, most: u64, micros: impl Fn(Segments) -> f64) -> Segments {
        let [least, most] = [2, most].map(|n| n.min(tiles));
        let of_count = |count: u64| {
            let each = tiles.div_ceil(count);
            Segments { count: tiles.div_ceil(each), tiles: each, saves_whole: false }
        };
        let best = (least..=most.max(least)).map(of_count).min_by(|a, b| micros(*a).total_cmp(&micros(*b)));
        best.unwrap_or(Segments::one(tiles))
    }
}
