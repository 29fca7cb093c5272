//! The loss while training, drawn.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// Losses while training.
#[derive(Default)]
pub(crate) struct Curve {
    /// The loss of every step, on the text that it trained on.
    pub(crate) steps: Vec<f32>,
    /// After some steps, on text that the model has not seen.
    pub(crate) held_out: Vec<(usize, f32)>,
}

/// Steps whose losses are averaged.
const WINDOW: usize = 20;
const STEPS: RGBColor = RGBColor(200, 200, 200);
const MEAN: RGBColor = RGBColor(31, 90, 166);
const HELD_OUT: RGBColor = RGBColor(217, 95, 14);

impl Curve {
    /// Draws each step's loss, their moving average and the held-out losses.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::new(path, (900, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let top = self.steps.iter().copied().fold(1.0, f32::max) * 1.05;
        let mut chart = ChartBuilder::on(&root)
            .caption("Byte-level Mamba: loss while training", ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d(0..self.steps.len().max(2), 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .y_label_formatter(&|y| format!("{y:.0}"))
            .x_desc("steps of training")
            .y_desc("loss, nats per byte")
            .draw()?;
        let steps = (1..).zip(self.steps.iter().copied());
        chart.draw_series(LineSeries::new(steps, STEPS))?.label("each step").legend(key(STEPS));
        let mean = LineSeries::new((1..).zip(smoothed(&self.steps)), MEAN.stroke_width(2));
        chart.draw_series(mean)?.label(format!("mean of the last {WINDOW} steps")).legend(key(MEAN));
        let held_out = LineSeries::new(self.held_out.iter().copied(), HELD_OUT.stroke_width(2)).point_size(3);
        chart.draw_series(held_out)?.label("text that it does not train on").legend(key(HELD_OUT));
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 15))
            .background_style(WHITE)
            .border_style(STEPS)
            .draw()?;
        root.present()?;
        Ok(())
    }
}

/// The mean of each step's loss and the 19 before it.
fn smoothed(losses: &[f32]) -> Vec<f32> {
    let mean = |window: &[f32]| window.iter().sum::<f32>() / window.len() as f32;
    (1..=losses.len()).map(|n| mean(&losses[n.saturating_sub(WINDOW)..n])).collect()
}

fn key(color: RGBColor) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color.stroke_width(2))
}
