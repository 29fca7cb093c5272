//! Draws results, ours and the peers': of cases that memory limits the share of the copy bandwidth, of the others the speed
//! beside the fastest peer.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;

use super::BenchError;
use super::cases::{Group, all};

/// A line of a bench program, ours or a peer's. Lines of other kinds lack what makes them one.
#[derive(Deserialize)]
struct Record {
    case: String,
    #[serde(rename = "impl")]
    ours: Option<String>,
    peer: Option<String>,
    ms: f64,
    bytes: Option<f64>,
}

/// The best times of a case that we have run.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    case: String,
    ms: f64,
    /// Bytes that had to move; 0 where more than memory limits the case.
    bytes: f64,
    peer: Option<(String, f64)>,
}

/// What there is to draw.
#[derive(Debug, Default)]
pub struct Results {
    rows: Vec<Row>,
    /// The copy's bytes per millisecond.
    copy: f64,
}

impl Results {
    /// Reads JSON lines of bench programs; of several times of one case the least counts. Copies tell the bandwidth.
    pub fn read(text: &str) -> Results {
        let records: Vec<Record> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let (copies, cases): (Vec<_>, Vec<_>) = records.into_iter().partition(|r| r.case.starts_with("copy-"));
        let copy = copies.iter().filter_map(|r| Some(r.bytes? / r.ms)).fold(0.0, f64::max);
        let mut rows: Vec<Row> = vec![];
        for ours in cases.iter().filter(|r| r.ours.is_some()) {
            match rows.iter_mut().find(|row| row.case == ours.case) {
                Some(row) => row.ms = row.ms.min(ours.ms),
                None => rows.push(Row {
                    case: ours.case.clone(),
                    ms: ours.ms,
                    bytes: ours.bytes.filter(|_| is_limited_by_memory(&ours.case)).unwrap_or(0.0),
                    peer: fastest(&cases, &ours.case),
                }),
            }
        }
        Results { rows, copy }
    }

    /// Draws them.
    ///
    /// # Errors
    /// [`BenchError::Plot`] when there is nothing to draw, or the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), BenchError> {
        let (memory, other): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.bytes > 0.0 && self.copy > 0.0);
        let share = |ms: f64, bytes: f64| bytes / ms / self.copy;
        let shares: Vec<Bars> = memory.iter().map(|row| row.bars(|ms| share(ms, row.bytes))).collect();
        let beside = |row: &&Row| row.peer.as_ref().map(|(_, peer)| row.bars(|ms| peer / ms));
        let speeds: Vec<Bars> = other.iter().filter_map(beside).collect();
        if shares.is_empty() && speeds.is_empty() {
            return Err(BenchError::Plot("there is no case to draw".into()));
        }
        let heights =
            [&shares, &speeds].map(|panel| if panel.is_empty() { 0 } else { HEAD + STEP * panel.len() as i32 });
        let root = SVGBackend::new(path, (WIDTH as u32, (heights[0] + heights[1] + GAP) as u32)).into_drawing_area();
        let failed = |e: DrawingAreaErrorKind<_>| BenchError::Plot(format!("{}: {e}", path.display()));
        root.fill(&WHITE).map_err(failed)?;
        let titles = ["share of the bandwidth of a copy", "speed beside the fastest peer"];
        let mut top = 0;
        for ((panel, title), height) in [shares, speeds].iter().zip(titles).zip(heights) {
            draw_panel(&root, top, title, panel).map_err(failed)?;
            top += height;
        }
        root.present().map_err(failed)
    }
}

/// A case's lengths of bars, 1 being the copy or the peer.
struct Bars {
    label: String,
    ours: f64,
    peer: Option<f64>,
    words: String,
}

impl Row {
    fn bars(&self, length: impl Fn(f64) -> f64) -> Bars {
        let beside = self.peer.as_ref().map(|(name, ms)| format!(", {:.2} × {name}", ms / self.ms));
        Bars {
            label: self.case.clone(),
            ours: length(self.ms),
            peer: self.peer.as_ref().map(|(_, ms)| length(*ms)),
            words: time(self.ms) + &beside.unwrap_or_default(),
        }
    }
}

fn time(ms: f64) -> String {
    if ms < 0.1 { format!("{:.1} µs", 1e3 * ms) } else { format!("{ms:.3} ms") }
}

fn is_limited_by_memory(case: &str) -> bool {
    let group = all().into_iter().find(|known| known.name == case).map(|known| known.group);
    matches!(group, Some(Group::Scan | Group::Rows | Group::Monoid))
}

fn fastest(records: &[Record], case: &str) -> Option<(String, f64)> {
    let peers = records.iter().filter(|r| r.case == case).filter_map(|r| Some((r.peer.clone()?, r.ms)));
    peers.min_by(|a, b| a.1.total_cmp(&b.1))
}

const WIDTH: i32 = 1040;
/// Pixels of a case, of a panel's title, and below everything.
const STEP: i32 = 18;
const HEAD: i32 = 40;
const GAP: i32 = 12;
/// Where bars begin, and how long 1 is.
const LEFT: i32 = 290;
const UNIT: f64 = 320.0;
/// Longer bars are cut off; their words tell.
const LONGEST: f64 = 1.3;
const OURS: RGBColor = RGBColor(200, 40, 40);
const PEER: RGBColor = RGBColor(170, 170, 170);

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw_panel(root: &DrawingArea<SVGBackend<'_>, Shift>, top: i32, title: &str, panel: &[Bars]) -> Drawn {
    if panel.is_empty() {
        return Ok(());
    }
    let one = LEFT + UNIT as i32;
    root.draw(&Text::new(format!("{title} (red: oplus, grey: peer)"), (10, top + 10), ("sans-serif", 19)))?;
    for (bars, y) in panel.iter().zip((top + HEAD..).step_by(STEP as usize)) {
        root.draw(&Text::new(bars.label.clone(), (10, y), ("sans-serif", 15)))?;
        let end = |length: f64| LEFT + (length.min(LONGEST) * UNIT) as i32;
        root.draw(&Rectangle::new([(LEFT, y), (end(bars.ours), y + 8)], OURS.filled()))?;
        if let Some(peer) = bars.peer {
            root.draw(&Rectangle::new([(LEFT, y + 8), (end(peer), y + 13)], PEER.filled()))?;
        }
        root.draw(&Text::new(bars.words.clone(), (LEFT + (LONGEST * UNIT) as i32 + 8, y), ("sans-serif", 15)))?;
    }
    let bottom = top + HEAD + STEP * panel.len() as i32 - 4;
    root.draw(&PathElement::new(vec![(one, top + HEAD - 6), (one, bottom)], BLACK))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"case": "copy-f32-2^28", "impl": "oplus", "ms": 0.5, "bytes": 2000}
{"case": "cumsum-f32-2^28", "impl": "oplus", "ms": 0.6, "bytes": 2000, "plan": "lookback"}
{"case": "cumsum-f32-2^28", "impl": "oplus", "ms": 0.55, "bytes": 2000}
{"case": "cumsum-f32-2^28", "peer": "torch", "ms": 0.9, "bytes": 2000}
{"case": "cumsum-f32-2^28", "peer": "cub", "ms": 0.7, "bytes": 2000}
{"case": "attn-bf16-b2h16s8192d128-fwd", "impl": "oplus", "ms": 2.0, "bytes": 5}
{"case": "attn-bf16-b2h16s8192d128-fwd", "peer": "cudnn", "ms": 1.5}
{"case": "affine-f32-2^28", "impl": "oplus", "bytes": 2000, "error": "out of memory"}
{"device": "GPU"}
not JSON"#;

    #[test]
    fn the_best_times_count() {
        let Results { rows, copy } = Results::read(LINES);
        assert_eq!((rows.len(), copy), (2, 4000.0));
        assert_eq!((rows[0].ms, rows[0].bytes, rows[0].peer.clone()), (0.55, 2000.0, Some(("cub".into(), 0.7))));
        assert_eq!((rows[1].bytes, rows[1].peer.clone()), (0.0, Some(("cudnn".into(), 1.5))));
    }

    #[test]
    fn every_case_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.svg");
        Results::read(LINES).draw(&path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for words in
            ["cumsum-f32-2^28", "attn-bf16-b2h16s8192d128-fwd", "0.550 ms, 1.27 × cub", "2.000 ms, 0.75 × cudnn"]
        {
            assert!(svg.contains(words), "no `{words}` in\n{svg}");
        }
        assert!(matches!(Results::read("").draw(&path), Err(BenchError::Plot(_))));
        assert!(Results::read(LINES).draw(&folder.path().join("none/bench.svg")).is_err());
    }
}
