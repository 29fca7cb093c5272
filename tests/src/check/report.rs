//! The results of a check: lines, a summary, receipts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::source::Recorder;

/// One result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    /// The name of the check.
    pub check: String,
    /// `forward`, `backward`, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pass: String,
    /// The schedules of the launches.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub schedules: String,
    /// The largest error in units of its bound.
    pub worst: f64,
    /// Elements compared.
    pub compared: usize,
    /// Elements without a bound.
    pub unbounded: usize,
    /// Seconds that it took, of scenarios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The keys of the launches' kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// Collects lines.
pub struct Report {
    state: Mutex<State>,
    begun: Instant,
    /// Whether the terminal is another process's.
    quiet: bool,
    receipts: Option<Receipts>,
}

/// Where receipts are kept while results come in, so that a run that is stopped leaves those that it has.
pub struct Receipts {
    /// The file; it is replaced as a whole.
    pub path: PathBuf,
    /// The name of the device.
    pub device: String,
    /// The source that keeps the texts of kernels.
    pub recorder: Arc<Recorder>,
}

#[derive(Default)]
struct State {
    sink: Option<Box<Sink>>,
    passed: usize,
    failed: Vec<String>,
    compared: usize,
    unbounded: usize,
    worst: (f64, String),
    /// The worst error of every kernel; infinite after a failure.
    kernels: BTreeMap<String, f64>,
    done: usize,
    /// When receipts were written last.
    kept: Option<Instant>,
}

/// A line of the file of receipts.
#[derive(Serialize)]
struct Receipt<'a> {
    key: &'a str,
    blake3: &'a str,
    device: &'a str,
    date: &'a str,
    worst_error: f64,
}

/// Where every line goes as well.
pub type Sink = dyn FnMut(&Line) + Send;

/// Failures that are printed.
const SHOWN: usize = 25;
/// How often receipts are written.
const OFTEN: Duration = Duration::from_secs(5);

impl Report {
    /// A report that also gives its lines to `sink`.
    pub fn new(sink: Option<Box<Sink>>) -> Report {
        let state = Mutex::new(State { sink, ..State::default() });
        Report { state, begun: Instant::now(), quiet: false, receipts: None }
    }

    /// The report that leaves the terminal alone until its summary.
    pub fn quiet(self, quiet: bool) -> Report {
        Report { quiet, ..self }
    }

    /// The report that keeps receipts in a file.
    pub fn keeping(self, receipts: Option<Receipts>) -> Report {
        Report { receipts, ..self }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a result.
    pub fn add(&self, line: &Line) {
        let state = &mut *self.state();
        if let Some(sink) = &mut state.sink {
            sink(line);
        }
        let failed = line.error.is_some();
        // Nothing runs where nothing is to be computed.
        let has_run = failed || line.compared + line.unbounded > 0;
        for key in line.keys.iter().filter(|_| has_run) {
            let worst = state.kernels.entry(key.clone()).or_default();
            *worst = worst.max(if failed { f64::INFINITY } else { line.worst });
        }
        state.compared += line.compared;
        state.unbounded += line.unbounded;
        if line.worst > state.worst.0 {
            state.worst = (line.worst, format!("{} {} {}", line.check, line.pass, line.schedules));
        }
        match &line.error {
            None => state.passed += 1,
            Some(error) => {
                let text = format!("{} {} {}: {error}", line.check, line.pass, line.schedules);
                if state.failed.len() < SHOWN && !self.quiet {
                    eprintln!("\nFAILED {text}");
                }
                state.failed.push(text);
            }
        }
        if state.kept.get_or_insert(self.begun).elapsed() >= OFTEN {
            state.kept = Some(Instant::now());
            // A failure to write is no error here: everything is written again at the end.
            let _ = self.keep(state);
        }
    }

    /// Writes the receipts of all kernels that have passed so far.
    fn keep(&self, state: &State) -> io::Result<()> {
        let Some(Receipts { path, device, recorder }) = &self.receipts else { return Ok(()) };
        let new = path.with_extension("new");
        std::fs::write(&new, state.receipts(recorder, device))?;
        std::fs::rename(new, path)
    }

    /// Writes the receipts of all kernels that have passed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(&self) -> io::Result<()> {
        self.keep(&self.state())
    }

    /// Adds a result that may have taken long, and tells of it on the terminal.
    pub fn tell(&self, line: &Line) {
        self.add(line);
        if !self.quiet {
            let verdict = if line.error.is_some() { "FAILED" } else { "passed" };
            let seconds = line.seconds.unwrap_or_default();
            eprintln!("{verdict} {} in {seconds:.1} s, {:.3} of its bound", line.check, line.worst);
        }
    }

    /// Tells on the terminal how far a suite is.
    pub fn progress(&self, suite: &str, total: usize) {
        if self.quiet {
            return;
        }
        let state = &mut *self.state();
        state.done += 1;
        if state.done.is_multiple_of(if total > 100 { 50 } else { 5 }) || state.done == total {
            eprint!("\r{suite}: {} of {total}, {:.0} s ", state.done, self.begun.elapsed().as_secs_f64());
        }
        if state.done == total {
            state.done = 0;
            eprintln!();
        }
    }

    /// Prints the summary; whether everything passed.
    pub fn summary(&self) -> bool {
        let state = self.state();
        let (passed, failed) = (state.passed, state.failed.len());
        println!("{passed} passed, {failed} failed in {:.0} s", self.begun.elapsed().as_secs_f64());
        println!("{} elements compared, {} more hang on rounding and have no bound", state.compared, state.unbounded);
        println!("largest error: {:.3} of its bound, {}", state.worst.0, state.worst.1);
        let of = |k: f64| state.kernels.values().filter(|worst| **worst <= k).count();
        println!("{} kernels ran, {} of them within their bounds", state.kernels.len(), of(1.0));
        state.failed.iter().take(SHOWN).for_each(|text| println!("FAILED {text}"));
        failed == 0 && passed > 0
    }
}

impl State {
    /// The receipts of all kernels that passed and whose text is known.
    fn receipts(&self, recorder: &Recorder, device: &str) -> String {
        let (mut lines, date) = (String::new(), today());
        for (key, worst_error) in self.kernels.iter().filter(|(_, worst)| **worst <= 1.0) {
            let Some(blake3) = recorder.hash(key) else { continue };
            let receipt = Receipt { key, blake3: &blake3, device, date: &date, worst_error: *worst_error };
            lines.extend(serde_json::to_string(&receipt).map(|line| line + "\n"));
        }
        lines
    }
}

/// The date in UTC, as in 2026-11-21.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    date((seconds / 86_400) as i64)
}

/// The date of a day since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
fn date(day: i64) -> String {
    let z = day + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = (if month < 10 { month + 3 } else { month - 9 }, year + era * 400);
    format!("{:04}-{month:02}-{day:02}", year + i64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        let dates = [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_778, "2026-11-21"), (47_541, "2100-03-01")];
        assert!(dates.iter().all(|(day, expected)| date(*day) == *expected));
    }

    #[test]
    fn a_failure_costs_the_receipt_and_the_verdict() {
        let recorder = Arc::new(Recorder::default());
        recorder.note("good", "text");
        recorder.note("bad", "other text");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receipts.jsonl");
        let kept = Receipts { path: path.clone(), device: "GPU".into(), recorder: recorder.clone() };
        let report = Report::new(None).keeping(Some(kept));
        let line = |key: &str, error: Option<&str>| Line {
            keys: vec![key.into()],
            worst: 0.5,
            compared: 1,
            error: error.map(Into::into),
            ..Line::default()
        };
        report.add(&line("good", None));
        report.add(&line("unknown", None));
        recorder.note("idle", "a third text");
        report.add(&Line { compared: 0, ..line("idle", None) });
        assert!(report.summary());
        report.add(&line("bad", Some("wrong")));
        report.add(&line("bad", None));
        report.finish().unwrap();
        let receipts = std::fs::read_to_string(path).unwrap();
        assert!(receipts.contains("\"key\":\"good\"") && receipts.contains("\"worst_error\":0.5"), "{receipts}");
        assert_eq!((receipts.lines().count(), report.summary()), (1, false));
    }
}
