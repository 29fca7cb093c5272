//! Results of bench programs, ours and the peers', as lines of JSON.

use serde::Deserialize;

/// A line of a bench program. Lines of other kinds lack what makes them one.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Record {
    /// The name of the case.
    pub case: String,
    /// Whose time it is, if ours.
    #[serde(rename = "impl")]
    pub ours: Option<String>,
    /// Whose time it is, if another library's.
    pub peer: Option<String>,
    /// Milliseconds.
    pub ms: f64,
    /// Bytes that had to move.
    pub bytes: Option<f64>,
    /// The device.
    pub device: Option<String>,
    /// The day of the run.
    pub date: Option<String>,
}

/// Times of cases; of several times of one case the least counts.
#[derive(Clone, Debug, Default)]
pub struct Results {
    records: Vec<Record>,
}

/// A time of ours and the fastest peer's.
#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    /// Milliseconds.
    pub ms: f64,
    /// The fastest peer's name and milliseconds.
    pub peer: Option<(String, f64)>,
    /// The share of the bandwidth of a copy, where the case's bytes and a copy are known.
    pub share: Option<f64>,
}

impl Time {
    /// How many times as fast as the fastest peer.
    pub fn speed(&self) -> Option<f64> {
        self.peer.as_ref().map(|(_, ms)| ms / self.ms)
    }
}

impl Results {
    /// Reads lines of JSON; other lines are passed over.
    pub fn read(text: &str) -> Results {
        Results { records: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() }
    }

    /// All records, in their order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The least time of a case, if we have run it, and the fastest peer's.
    pub fn time(&self, case: &str) -> Option<Time> {
        let of = |case: &str| self.records.iter().filter(move |r| r.case == case).collect::<Vec<_>>();
        let least = |records: Vec<&Record>| records.into_iter().min_by(|a, b| a.ms.total_cmp(&b.ms)).cloned();
        let ours = least(of(case).into_iter().filter(|r| r.ours.is_some()).collect())?;
        let peer = least(of(case).into_iter().filter(|r| r.peer.is_some()).collect());
        let share = ours.bytes.zip(self.copy()).map(|(bytes, copy)| bytes / ours.ms / copy);
        Some(Time { ms: ours.ms, peer: peer.and_then(|r| Some((r.peer?, r.ms))), share })
    }

    /// Where the cases ran, in words.
    pub fn device(&self) -> String {
        let mut devices: Vec<&str> = self.records.iter().filter_map(|r| r.device.as_deref()).collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.is_empty() { "on this machine".to_owned() } else { format!("on one {}", devices.join(" and one ")) }
    }

    /// The fastest copy's bytes per millisecond.
    fn copy(&self) -> Option<f64> {
        let copies = self.records.iter().filter(|r| r.case.starts_with("copy-") && r.ours.is_some());
        copies.filter_map(|r| Some(r.bytes? / r.ms)).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"case": "copy-f32-2^28", "impl": "oplus", "ms": 0.5, "bytes": 2000}
{"case": "cumsum-f32-2^28", "impl": "oplus", "ms": 0.6, "bytes": 2000, "plan": "lookback"}
{"case": "cumsum-f32-2^28", "impl": "oplus", "ms": 0.5, "bytes": 2000}
{"case": "cumsum-f32-2^28", "peer": "torch", "ms": 0.9, "bytes": 2000}
{"case": "cumsum-f32-2^28", "peer": "cub", "ms": 0.7, "bytes": 2000}
{"case": "affine-f32-2^28", "impl": "oplus", "bytes": 2000, "error": "out of memory"}
{"device": "GPU"}
not JSON"#;

    #[test]
    fn the_best_times_count() {
        let results = Results::read(LINES);
        let time = results.time("cumsum-f32-2^28").unwrap();
        assert_eq!((time.ms, time.peer.clone(), time.share), (0.5, Some(("cub".into(), 0.7)), Some(1.0)));
        assert_eq!(time.speed(), Some(1.4));
        assert_eq!(results.time("affine-f32-2^28"), None);
    }
}
