//! The loss while training, drawn.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// Each step's loss and their moving average.
pub(crate) fn draw(path: &Path, losses: &[f32]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (900, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = losses.iter().copied().fold(1.0, f32::max) * 1.05;
    let mut chart = ChartBuilder::on(&root)
        .caption("Byte-level Mamba: loss while training", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d(1..losses.len().max(2), 0.0..top)?;
    chart.configure_mesh().x_desc("step").y_desc("nats per byte").draw()?;
    let series = |values: Vec<f32>| LineSeries::new((1..).zip(values), &RGBColor(190, 190, 190));
    chart.draw_series(series(losses.to_vec()))?;
    chart.draw_series(LineSeries::new((1..).zip(smoothed(losses)), RED.stroke_width(2)))?;
    root.present()?;
    Ok(())
}

/// The mean of each step's loss and the 19 before it.
fn smoothed(losses: &[f32]) -> Vec<f32> {
    let mean = |window: &[f32]| window.iter().sum::<f32>() / window.len() as f32;
    (1..=losses.len()).map(|n| mean(&losses[n.saturating_sub(20)..n])).collect()
}
