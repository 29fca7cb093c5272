//! The losses while training, drawn.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::Training;

const GRID: RGBColor = RGBColor(200, 200, 200);
/// Of the two trainings; the second is drawn over the first, thinner.
const COLORS: [RGBColor; 2] = [RGBColor(31, 90, 166), RGBColor(217, 95, 14)];
const WIDTHS: [u32; 2] = [5, 1];

/// Draws the losses of every step.
pub(super) fn draw(path: &Path, caption: &str, trainings: &[Training]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (900, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let steps = trainings.iter().map(|t| t.losses.len()).fold(2, usize::max);
    let top = trainings.iter().flat_map(|t| &t.losses).copied().fold(1.0, f32::max) * 1.05;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(0..steps, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("steps of training")
        .y_desc("loss, nats per byte")
        .draw()?;
    for (k, training) in trainings.iter().enumerate() {
        let style = COLORS[k % 2].stroke_width(WIDTHS[k % 2]);
        let line = LineSeries::new((1..).zip(training.losses.iter().copied()), style);
        let label = format!("{}: {:.1} ms per step", training.name, training.step.as_secs_f64() * 1e3);
        chart.draw_series(line)?.label(label).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().label_font(("sans-serif", 15)).background_style(WHITE).border_style(GRID).draw()?;
    root.present()?;
    Ok(())
}
