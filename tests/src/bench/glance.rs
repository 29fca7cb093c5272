//! Draws results so that a reader takes them in at a glance: for each section the geometric mean of the speeds beside the fastest peers, and
//! the range of the speeds, forward and backward.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::BenchError;
use super::plot::{
    BACKWARD, Block, FORWARD, GRID, INK, LabelStyle, Mark, PALE, blocks, draw_key, draw_title, geometric_mean, mark,
    picture, times, words,
};
use super::results::{Results, Time};

type Area<'a> = super::plot::Area<'a>;
type Drawn = super::plot::Drawn;

const WIDTH: i32 = 900;
/// Pixels of a row, and between sections.
const STEP: i32 = 20;
const GAP: i32 = 12;
const TOP: i32 = 100;
const BOTTOM: i32 = 34;
/// Where names end, where the axis begins and ends, and where numbers begin.
const NAMES: i32 = 330;
const AXIS: (i32, i32) = (350, 730);
const NUMBERS: i32 = 750;
/// The least and the greatest speed that have a place.
const LEAST: f64 = 0.5;
const MOST: f64 = 20.0;
const TICKS: [f64; 6] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0];

/// The speeds of a section in one direction.
struct Range {
    name: &'static str,
    colour: RGBColor,
    speeds: Vec<f64>,
}

impl Range {
    /// Forward and backward, where there are any.
    fn of(block: &Block) -> Vec<Range> {
        let all = [("forward", FORWARD), ("backward", BACKWARD)].into_iter().enumerate();
        let all = all.map(|(pass, (name, colour))| {
            let speeds = block.rows.iter().filter_map(|(_, times)| times[pass].as_ref().and_then(Time::speed));
            Range { name, colour, speeds: speeds.collect() }
        });
        all.filter(|range| !range.speeds.is_empty()).collect()
    }

    fn mean(&self) -> f64 {
        geometric_mean(&self.speeds).unwrap_or(1.0)
    }

    fn least(&self) -> f64 {
        self.speeds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.speeds.iter().copied().fold(0.0, f64::max)
    }
}

impl Results {
    /// The picture of all sections that have been run beside a peer, as SVG.
    ///
    /// # Errors
    /// [`BenchError::Plot`] when there is nothing to draw.
    pub fn glance(&self) -> Result<String, BenchError> {
        let sections: Vec<(String, Vec<Range>)> =
            blocks(self).into_iter().map(|block| (block.title.clone(), Range::of(&block))).collect();
        let sections: Vec<_> = sections.into_iter().filter(|(_, ranges)| !ranges.is_empty()).collect();
        if sections.is_empty() {
            return Err(BenchError::Plot("there is no case to draw".into()));
        }
        let rows: i32 = sections.iter().map(|(_, ranges)| STEP * ranges.len() as i32 + GAP).sum();
        let height = TOP + rows + BOTTOM;
        picture((WIDTH, height), |area| draw_all(area, height, &self.device(), &sections))
    }
}

fn x_of(speed: f64) -> i32 {
    let share = (speed.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    AXIS.0 + (share * f64::from(AXIS.1 - AXIS.0)).round() as i32
}

fn draw_all(area: &Area<'_>, height: i32, device: &str, sections: &[(String, Vec<Range>)]) -> Drawn {
    draw_head(area, device)?;
    draw_axis(area, height - BOTTOM)?;
    let mut top = TOP;
    for (title, ranges) in sections {
        let middle = top + STEP * ranges.len() as i32 / 2;
        words(area, (NAMES, middle), title, LabelStyle { size: 15, colour: INK, align: HPos::Right })?;
        for (range, y) in ranges.iter().zip((top + STEP / 2..).step_by(STEP as usize)) {
            draw_range(area, y, range)?;
        }
        top += STEP * ranges.len() as i32 + GAP;
    }
    Ok(())
}

fn draw_head(area: &Area<'_>, device: &str) -> Drawn {
    draw_title(area, device)?;
    draw_key(area, 48, &[Mark(16, FORWARD, "forward"), Mark(100, BACKWARD, "backward")])?;
    let meaning = "mark: geometric mean of the cases; line: from the least to the most";
    words(area, (200, 48), meaning, LabelStyle { size: 14, colour: PALE, align: HPos::Left })?;
    words(
        area,
        ((AXIS.0 + AXIS.1) / 2, 72),
        "times as fast (logarithmic)",
        LabelStyle { size: 14, colour: INK, align: HPos::Center },
    )?;
    words(area, (NUMBERS, 72), "mean, cases", LabelStyle { size: 14, colour: INK, align: HPos::Left })
}

fn draw_axis(area: &Area<'_>, bottom: i32) -> Drawn {
    for tick in TICKS {
        let colour = if tick == 1.0 { PALE } else { GRID };
        area.draw(&PathElement::new(vec![(x_of(tick), TOP - 4), (x_of(tick), bottom)], colour))?;
        for y in [TOP - 12, bottom + 12] {
            words(
                area,
                (x_of(tick), y),
                &format!("{tick} ×"),
                LabelStyle { size: 13, colour: PALE, align: HPos::Center },
            )?;
        }
    }
    Ok(())
}

fn draw_range(area: &Area<'_>, y: i32, range: &Range) -> Drawn {
    let line = vec![(x_of(range.least()), y), (x_of(range.most()), y)];
    area.draw(&PathElement::new(line, range.colour.stroke_width(2)))?;
    if range.most() > MOST {
        let beyond = format!("▸ {}", times(range.most()));
        words(area, (AXIS.1 - 4, y - 9), &beyond, LabelStyle { size: 12, colour: range.colour, align: HPos::Right })?;
    }
    mark(area, (x_of(range.mean()), y), range.colour, range.name == "backward")?;
    let count = range.speeds.len();
    words(
        area,
        (NUMBERS, y),
        &format!("{}, {count}", times(range.mean())),
        LabelStyle { size: 14, colour: range.colour, align: HPos::Left },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"case": "cumsum-f32-2^28", "impl": "oplus", "ms": 0.5}
{"case": "cumsum-f32-2^28", "peer": "cub", "ms": 1.0}
{"case": "affine-f32-2^28", "impl": "oplus", "ms": 0.5}
{"case": "affine-f32-2^28", "peer": "cub", "ms": 16.0}
{"case": "attn-bf16-b2h16s8192d128-bwd", "impl": "oplus", "ms": 2.0}
{"case": "attn-bf16-b2h16s8192d128-bwd", "peer": "cudnn", "ms": 1.8}
{"case": "retention-bf16-b8h32t2048k64v64-fwd", "impl": "oplus", "ms": 2.0}"#;

    #[test]
    fn a_section_has_its_mean_its_range_and_its_number_of_cases() {
        let svg = Results::read(LINES).glance().unwrap();
        for words in
            ["Sums and linear recurrences", "8.00 ×, 2", "▸ 32 ×", "Softmax attention, bf16", "0.90 ×, 1", "10 ×"]
        {
            assert!(svg.contains(words), "no `{words}` in\n{svg}");
        }
        // Without a peer there is nothing to compare.
        assert!(!svg.contains("Other recurrences of matrices"));
        assert!(matches!(Results::read("").glance(), Err(BenchError::Plot(_))));
    }

    #[test]
    fn no_mark_leaves_the_axis() {
        assert_eq!([x_of(0.1), x_of(LEAST), x_of(MOST), x_of(5000.0)], [AXIS.0, AXIS.0, AXIS.1, AXIS.1]);
    }
}
