//! Fits the decay of an exponential moving average to three centuries of sunspots, by gradient descent.
//!
//! The average h[t] = (1 − α)·h[t−1] + α·x[t] sees only the past; the mean of the eleven years around t (one solar cycle)
//! sees both sides. Which α lets the first follow the second best? The gradient of the loss is derived from the equations.
//!
//! `cargo run --release -p oplus --example sunspots` draws `sunspots.svg`; `-- --help` lists the options.

use std::error::Error;
use std::path::PathBuf;

use oplus::{Device, Tensor, scan};
use plotters::prelude::*;

scan! {
    /// The causal average and its mean squared distance from a target, where `known` is 1.
    pub fn smooth(x: f64[T], target: f64[T], known: f64[T], theta: f64) -> (h: f64[T], loss: f64) {
        let alpha = sigmoid(theta);
        let start = first(T, x);
        h = scan(T, Affine(1 - alpha, alpha * x), init = start).b;
        let error = known * (h - target);
        loss = sum(T, error * error) / sum(T, known);
    }
}

/// Years of one solar cycle.
const CYCLE: usize = 11;

/// Fits an exponential moving average to a yearly series and draws it.
#[derive(clap::Parser)]
struct Args {
    /// A CSV file with a header and two columns: year and value.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/sunspots.csv"))]
    csv: PathBuf,
    /// Where to draw the result.
    #[arg(long, default_value = "sunspots.svg")]
    svg: PathBuf,
    /// Steps of gradient descent.
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Step size.
    #[arg(long, default_value_t = 0.0005)]
    rate: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = <Args as clap::Parser>::parse();
    let (years, numbers) = read(&args.csv)?;
    if numbers.len() < CYCLE {
        return Err(format!("{} has {} rows; {CYCLE} are needed", args.csv.display(), numbers.len()).into());
    }
    let device = place()?;
    println!("{} years from {} on {device}", numbers.len(), years[0]);
    let (target, known) = centred_mean(&numbers);
    let mut theta = 0.0;
    let series = |v: &[f64]| Tensor::from_slice(v, &[v.len()])?.to_device(&device);
    let drawn: Vec<Option<f64>> =
        target.iter().zip(&known).map(|(mean, known)| (*known > 0.0).then_some(*mean)).collect();
    let (x, target, known) = (series(&numbers)?, series(&target)?, series(&known)?);
    let mut last = None;
    for step in 0..=args.steps {
        let theta_tensor = Tensor::from_slice(&[theta], &[])?.to_device(&device)?;
        let inputs = Smooth { x: x.clone(), target: target.clone(), known: known.clone(), theta: theta_tensor };
        let out = smooth(inputs)?;
        let one = Tensor::from_slice(&[1.0_f64], &[])?.to_device(&device)?;
        let gradients = out.backward(SmoothCotangents { loss: Some(one), h: None })?;
        let loss = out.loss.to_vec::<f64>()?[0];
        if step % 10 == 0 {
            println!("step {step:3}   error {:7.3}   decay {:.4}", loss.sqrt(), 1.0 - sigmoid(theta));
        }
        theta -= args.rate * gradients.theta.to_vec::<f64>()?[0];
        last = Some(out.h.to_vec::<f64>()?);
    }
    let curves = Curves { yearly: &numbers, target: &drawn, fitted: &last.unwrap_or_default() };
    curves.draw(&args.svg, &years)?;
    println!("drawn in {}", args.svg.display());
    Ok(())
}

/// The GPU if there is one that has the kernels, else the CPU.
fn place() -> Result<Device, Box<dyn Error>> {
    Ok(if cfg!(feature = "jit") { Device::default() } else { Device::Cpu })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn read(path: &PathBuf) -> Result<(Vec<i32>, Vec<f64>), Box<dyn Error>> {
    let mut reader = csv::Reader::from_path(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rows = reader.deserialize().collect::<Result<Vec<(i32, f64)>, _>>()?;
    Ok(rows.into_iter().unzip())
}

/// The mean over a cycle around each year, and 1 where all its years are there.
fn centred_mean(x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let half = CYCLE / 2;
    let at =
        |t: usize| (t >= half && t + half < x.len()).then(|| x[t - half..=t + half].iter().sum::<f64>() / CYCLE as f64);
    (0..x.len()).map(|t| (at(t).unwrap_or(0.0), f64::from(at(t).is_some()))).unzip()
}

/// The curves: a number for every year, or none.
struct Curves<'a> {
    yearly: &'a [f64],
    target: &'a [Option<f64>],
    fitted: &'a [f64],
}

const YEARLY: RGBColor = RGBColor(190, 190, 190);
const TARGET: RGBColor = RGBColor(31, 90, 166);
const FITTED: RGBColor = RGBColor(217, 95, 14);

impl Curves<'_> {
    fn draw(&self, path: &PathBuf, years: &[i32]) -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::new(path, (1000, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        // The room above the highest year is for the legend.
        let top = self.yearly.iter().copied().fold(0.0, f64::max) * 1.3;
        let mut chart = ChartBuilder::on(&root)
            .caption(
                "Sunspots a year, their mean over a cycle, and the average that sees only the past",
                ("sans-serif", 19),
            )
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(years[0]..years[years.len() - 1], 0.0..top)?;
        chart.configure_mesh().light_line_style(WHITE).x_labels(12).x_desc("year").y_desc("sunspot number").draw()?;
        let series = |values: &[f64]| years.iter().copied().zip(values.iter().copied()).collect::<Vec<_>>();
        let target = years.iter().copied().zip(self.target).filter_map(|(year, mean)| Some((year, (*mean)?)));
        chart.draw_series(LineSeries::new(series(self.yearly), YEARLY))?.label("yearly number").legend(key(YEARLY));
        let target = LineSeries::new(target, TARGET.stroke_width(2));
        chart.draw_series(target)?.label(format!("mean of the {CYCLE} years around (target)")).legend(key(TARGET));
        let fitted = LineSeries::new(series(self.fitted), FITTED.stroke_width(2));
        chart.draw_series(fitted)?.label("fitted moving average").legend(key(FITTED));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .margin(8)
            .label_font(("sans-serif", 15))
            .background_style(WHITE)
            .border_style(YEARLY)
            .draw()?;
        root.present()?;
        Ok(())
    }
}

fn key(color: RGBColor) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color.stroke_width(2))
}
