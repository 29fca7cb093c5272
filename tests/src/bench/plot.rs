//! Draws results: the speed of every case beside the fastest peer's on a logarithmic axis, and the share of the bandwidth of
//! a copy.

use std::collections::BTreeSet;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::BenchError;
use super::results::{Results, Time};
use super::sections::{Row, Section, sections};

const WIDTH: i32 = 1070;
/// Pixels of a row, of a section's heading and after a section.
const STEP: i32 = 19;
const HEADING: i32 = 28;
const GAP: i32 = 10;
/// The space above the first section and below the last one.
const TOP: i32 = 96;
const BOTTOM: i32 = 34;
/// Where names end, where the panels of speeds and shares begin and end, and where times begin.
const NAMES: i32 = 318;
const SPEEDS: (i32, i32) = (332, 690);
const SHARES: (i32, i32) = (736, 896);
const TIMES: i32 = 916;
/// The greatest share that has a place.
const MOST: f64 = 1.1;
/// The least distance of numbers along an axis.
const ROOM: i32 = 38;

pub(super) const FORWARD: RGBColor = RGBColor(31, 90, 166);
pub(super) const BACKWARD: RGBColor = RGBColor(217, 95, 14);
const PEER: RGBColor = RGBColor(150, 150, 150);
pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const PALE: RGBColor = RGBColor(110, 110, 110);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Results {
    /// Draws the cases that we have run beside a peer, or whose share of a copy's bandwidth is known.
    ///
    /// # Errors
    /// [`BenchError::Plot`] when there is nothing to draw, or the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), BenchError> {
        let failed = |e: std::io::Error| BenchError::Plot(format!("{}: {e}", path.display()));
        std::fs::write(path, self.svg()?).map_err(failed)
    }

    /// The picture, as SVG.
    ///
    /// # Errors
    /// [`BenchError::Plot`] when there is nothing to draw.
    pub fn svg(&self) -> Result<String, BenchError> {
        let blocks = blocks(self);
        if blocks.is_empty() {
            return Err(BenchError::Plot("there is no case to draw".into()));
        }
        let height = TOP + BOTTOM + blocks.iter().map(Block::height).sum::<i32>();
        picture((WIDTH, height), |area| draw_all(area, height, &self.device(), &blocks))
    }
}

/// A picture of so many pixels, as SVG.
pub(super) fn picture(
    (width, height): (i32, i32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, BenchError> {
    let mut svg = String::new();
    let drawn = || {
        let area = SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()
    };
    let failed: Drawn = drawn();
    failed.map_err(|e| BenchError::Plot(e.to_string()))?;
    Ok(svg)
}

/// The geometric mean of speeds, if there are any.
pub(super) fn geometric_mean(speeds: &[f64]) -> Option<f64> {
    let logarithms: f64 = speeds.iter().map(|speed| speed.ln()).sum();
    (!speeds.is_empty()).then(|| (logarithms / speeds.len() as f64).exp())
}

/// A section with the times of its rows.
pub(super) struct Block {
    pub(super) title: String,
    pub(super) rows: Vec<(Row, [Option<Time>; 2])>,
}

impl Block {
    fn of(section: Section, results: &Results) -> Block {
        let is_shown = |time: &Time| time.peer.is_some() || time.share.is_some();
        let rows = section.rows.into_iter().map(|row| (row.times(results), row));
        let shown = rows.filter(|(times, _)| times.iter().flatten().any(is_shown));
        Block { title: section.title.into(), rows: shown.map(|(times, row)| (row, times)).collect() }
    }

    fn height(&self) -> i32 {
        HEADING + STEP * self.rows.len() as i32 + GAP
    }

    /// The speeds beside the fastest peers.
    fn speeds(&self) -> Vec<f64> {
        self.rows.iter().flat_map(|(_, times)| times.iter().flatten().filter_map(Time::speed)).collect()
    }

    /// The geometric mean of the speeds.
    fn mean(&self) -> Option<f64> {
        geometric_mean(&self.speeds())
    }
}

/// The sections that have something to draw, and one of the cases that no section has.
pub(super) fn blocks(results: &Results) -> Vec<Block> {
    let known: BTreeSet<String> = sections()
        .into_iter()
        .flat_map(|s| s.rows)
        .flat_map(|row| [Some(row.forward), row.backward])
        .flatten()
        .collect();
    let mut others: Vec<Row> = vec![];
    for record in results.records().iter().filter(|r| r.ours.is_some() && !r.case.starts_with("copy-")) {
        let row = Row { label: record.case.clone(), forward: record.case.clone(), backward: None };
        if !known.contains(&record.case) && !others.contains(&row) {
            others.push(row);
        }
    }
    let others = Section { name: "others", title: "Others", rows: others };
    let all = sections().into_iter().chain([others]).map(|section| Block::of(section, results));
    all.filter(|block| !block.rows.is_empty()).collect()
}

/// A logarithmic axis of speeds.
#[derive(Clone, Copy)]
struct Speeds {
    low: f64,
    high: f64,
}

impl Speeds {
    /// From a half, or less, to a number of one digit that no speed exceeds.
    fn of(blocks: &[Block]) -> Speeds {
        let speeds = || blocks.iter().flat_map(Block::speeds);
        let low = speeds().fold(0.5, f64::min);
        let most = speeds().fold(2.0, f64::max);
        let power = 10_f64.powf(most.log10().floor());
        Speeds { low: 0.5_f64.powf((1.0 / low).log2().ceil()), high: (most / power).ceil() * power }
    }

    fn x(self, speed: f64) -> i32 {
        let share = (speed / self.low).ln() / (self.high / self.low).ln();
        SPEEDS.0 + (share * f64::from(SPEEDS.1 - SPEEDS.0)).round() as i32
    }

    /// The numbers that the axis names: powers of ten, and those between them that have room.
    fn ticks(self) -> Vec<f64> {
        let of = |step: f64| (-3..6).map(move |power| step * 10_f64.powi(power));
        let mut ticks: Vec<f64> = vec![];
        for tick in [1.0, 5.0, 2.0].into_iter().flat_map(of).filter(|tick| (self.low..=self.high).contains(tick)) {
            if ticks.iter().all(|known| (self.x(*known) - self.x(tick)).abs() >= ROOM) {
                ticks.push(tick);
            }
        }
        ticks
    }
}

fn share_x(share: f64) -> i32 {
    SHARES.0 + (share.min(MOST) / MOST * f64::from(SHARES.1 - SHARES.0)).round() as i32
}

fn draw_all(area: &Area<'_>, height: i32, device: &str, blocks: &[Block]) -> Drawn {
    let speeds = Speeds::of(blocks);
    draw_head(area, device)?;
    draw_axes(area, speeds, (TOP, height - BOTTOM))?;
    let mut top = TOP;
    for block in blocks {
        draw_block(area, speeds, top, block)?;
        top += block.height();
    }
    Ok(())
}

/// How a text of a picture looks, and which of its ends is at its place.
#[derive(Clone, Copy)]
pub(super) struct LabelStyle {
    pub(super) size: i32,
    pub(super) colour: RGBColor,
    pub(super) align: HPos,
}

pub(super) fn words(
    area: &Area<'_>,
    (x, y): (i32, i32),
    words: &str,
    LabelStyle { size, colour, align }: LabelStyle,
) -> Drawn {
    let style = ("sans-serif", size).into_font().color(&colour).pos(Pos::new(align, VPos::Center));
    area.draw(&Text::new(words.to_owned(), (x, y), style))
}

/// The titles of the panels and what the marks mean.
fn draw_head(area: &Area<'_>, device: &str) -> Drawn {
    draw_title(area, device)?;
    draw_key(
        area,
        46,
        &[Mark(16, FORWARD, "forward"), Mark(100, BACKWARD, "backward"), Mark(192, PEER, "the peer's share")],
    )?;
    let middle = |(left, right): (i32, i32)| (left + right) / 2;
    let titles = [
        (middle(SPEEDS), "times as fast (logarithmic)", HPos::Center),
        (middle(SHARES), "share of a copy's bandwidth", HPos::Center),
        (TIMES, "milliseconds", HPos::Left),
    ];
    titles
        .into_iter()
        .try_for_each(|(x, title, align)| words(area, (x, 58), title, LabelStyle { size: 14, colour: INK, align }))
}

/// The title of a picture.
pub(super) fn draw_title(area: &Area<'_>, device: &str) -> Drawn {
    words(
        area,
        (10, 20),
        &format!("oplus beside the fastest other library, {device}"),
        LabelStyle { size: 19, colour: INK, align: HPos::Left },
    )
}

/// A mark of a picture's key: its place along the line, its colour and its meaning.
pub(super) struct Mark<'a>(pub(super) i32, pub(super) RGBColor, pub(super) &'a str);

/// Draws the meanings of some marks.
pub(super) fn draw_key(area: &Area<'_>, y: i32, marks: &[Mark<'_>]) -> Drawn {
    for Mark(x, colour, name) in marks {
        mark(area, (*x, y), *colour, *colour == BACKWARD)?;
        words(area, (x + 10, y), name, LabelStyle { size: 14, colour: INK, align: HPos::Left })?;
    }
    Ok(())
}

/// Lines and numbers of both axes, above the first section and below the last one.
fn draw_axes(area: &Area<'_>, speeds: Speeds, (top, bottom): (i32, i32)) -> Drawn {
    let line = |x: i32, colour: RGBColor| area.draw(&PathElement::new(vec![(x, top - 8), (x, bottom)], colour));
    let name = |x: i32, text: &str| {
        words(area, (x, top - 17), text, LabelStyle { size: 13, colour: PALE, align: HPos::Center })?;
        words(area, (x, bottom + 11), text, LabelStyle { size: 13, colour: PALE, align: HPos::Center })
    };
    for tick in speeds.ticks() {
        line(speeds.x(tick), if tick == 1.0 { PALE } else { GRID })?;
        name(speeds.x(tick), &format!("{tick} ×"))?;
    }
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        line(share_x(tick), if tick == 1.0 { PALE } else { GRID })?;
        name(share_x(tick), &format!("{:.0} %", 100.0 * tick))?;
    }
    Ok(())
}

fn draw_block(area: &Area<'_>, speeds: Speeds, top: i32, block: &Block) -> Drawn {
    words(area, (10, top + HEADING / 2), &block.title, LabelStyle { size: 16, colour: INK, align: HPos::Left })?;
    let (first, last) = (top + HEADING, top + HEADING + STEP * block.rows.len() as i32);
    if let Some(mean) = block.mean() {
        let x = speeds.x(mean);
        let dashes = (first - 18..last).step_by(6).map(|y| PathElement::new(vec![(x, y), (x, y + 3)], FORWARD));
        dashes.into_iter().try_for_each(|dash| area.draw(&dash))?;
        words(
            area,
            (x + 6, first - 12),
            &format!("geometric mean {}", times(mean)),
            LabelStyle { size: 13, colour: FORWARD, align: HPos::Left },
        )?;
    }
    for ((row, times), y) in block.rows.iter().zip((first + STEP / 2..).step_by(STEP as usize)) {
        words(area, (NAMES, y), &row.label, LabelStyle { size: 14, colour: INK, align: HPos::Right })?;
        draw_row(area, speeds, y, times)?;
    }
    Ok(())
}

/// The marks of a row: forward above, backward below where it has both.
fn draw_row(area: &Area<'_>, speeds: Speeds, y: i32, times: &[Option<Time>; 2]) -> Drawn {
    let known = times.iter().flatten().count() as i32;
    for (pass, time) in times.iter().enumerate() {
        let Some(time) = time else { continue };
        let (colour, is_back) = if pass == 1 { (BACKWARD, true) } else { (FORWARD, false) };
        let y = if known == 2 { y - 3 + 6 * pass as i32 } else { y };
        if let Some(speed) = time.speed() {
            let x = speeds.x(speed);
            area.draw(&PathElement::new(vec![(speeds.x(1.0), y), (x, y)], colour.stroke_width(2)))?;
            mark(area, (x, y), colour, is_back)?;
        }
        if let (Some(share), peer) = (time.share, &time.peer) {
            if let Some((_, ms)) = peer {
                mark(area, (share_x(share * time.ms / ms), y), PEER, is_back)?;
            }
            mark(area, (share_x(share), y), colour, is_back)?;
        }
    }
    let shown: Vec<String> = times.iter().flatten().map(|time| milliseconds(time.ms)).collect();
    words(area, (TIMES, y), &shown.join(" / "), LabelStyle { size: 14, colour: INK, align: HPos::Left })
}

/// A dot, or a square for a gradient.
pub(super) fn mark(area: &Area<'_>, (x, y): (i32, i32), colour: RGBColor, is_back: bool) -> Drawn {
    if is_back {
        return area.draw(&Rectangle::new([(x - 3, y - 3), (x + 3, y + 3)], colour.filled()));
    }
    area.draw(&Circle::new((x, y), 4, colour.filled()))
}

/// A ratio of times, with two or three digits.
pub(super) fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2} ×") } else { format!("{ratio:.0} ×") }
}

/// Milliseconds with three digits, but no more than four after the point.
pub fn milliseconds(ms: f64) -> String {
    let digits = 2 - ms.max(1e-9).log10().floor() as i32;
    format!("{ms:.*}", digits.clamp(0, 4) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"case": "copy-f32-2^28", "impl": "oplus", "ms": 0.5, "bytes": 2000}
{"case": "cumsum-f32-2^28", "impl": "oplus", "ms": 0.55, "bytes": 2000}
{"case": "cumsum-f32-2^28", "peer": "cub", "ms": 0.7, "bytes": 2000}
{"case": "attn-bf16-b2h16s8192d128-fwd", "impl": "oplus", "ms": 2.0}
{"case": "attn-bf16-b2h16s8192d128-fwd", "peer": "cudnn", "ms": 1.5}
{"case": "attn-bf16-b2h16s8192d128-bwd", "impl": "oplus", "ms": 0.02}
{"case": "attn-bf16-b2h16s8192d128-bwd", "peer": "cudnn", "ms": 70.0}
{"case": "something-new", "impl": "oplus", "ms": 1.0}
{"case": "something-new", "peer": "other", "ms": 3.0}"#;

    #[test]
    fn every_case_is_drawn_with_its_group_and_the_mean() {
        let svg = Results::read(LINES).svg().unwrap();
        for words in [
            "cumsum f32 2²⁸",
            "attention 2 × 16 × 8192 × 128",
            "2.00 / 0.0200",
            "geometric mean 51 ×",
            "something-new",
            "1000 ×",
            "share of a copy",
        ] {
            assert!(svg.contains(words), "no `{words}` in\n{svg}");
        }
        assert!(matches!(Results::read("").svg(), Err(BenchError::Plot(_))));
        assert!(Results::read(LINES).draw(Path::new("/no/such/folder/bench.svg")).is_err());
    }

    #[test]
    fn no_mark_leaves_the_axis() {
        let results = Results::read(LINES);
        let speeds = Speeds::of(&blocks(&results));
        assert_eq!((speeds.low, speeds.high), (0.5, 4000.0));
        assert_eq!([speeds.x(0.5), speeds.x(4000.0)], [SPEEDS.0, SPEEDS.1]);
        assert!((0..=3).all(|power| speeds.ticks().contains(&10_f64.powi(power))));
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [0.0079, 0.1588, 0.505, 1.159, 23.9, 365.0].map(milliseconds),
            ["0.0079", "0.159", "0.505", "1.16", "23.9", "365"]
        );
    }
}
