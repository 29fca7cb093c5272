//! The work of every rank: checks, and then measurements.

use std::ops::Range;
use std::time::{Duration, Instant};

use oplus::dist::Group;
use oplus::{Device, Error, Tensor};
use oplus_dsl::interpret::Data;

use super::shard::{Shard, parts_of};
use super::{Case, Line, TOLERANCE, library, timed};
use crate::check::data::download;

/// A rank.
pub struct Member {
    /// Where it runs.
    pub device: Device,
    /// All ranks.
    pub all: Group,
    /// All ranks again, which wait for each other for a short time only and of which one is going to be lost.
    pub fragile: Group,
}

/// The checks and measurements that are asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tokens of each rank in measurements, one after the other.
    pub tokens: Vec<usize>,
    /// How often each call is timed.
    pub runs: usize,
    /// Into how many parts calls of all ranks divide their rows, beside calls that do not.
    pub parts: usize,
    /// How often each of the timed kernels is run for its bits.
    pub bits: usize,
    /// Tokens of all ranks in checks of the timed kernels.
    pub checked: usize,
    /// Only the cases whose name has this in it.
    pub only: String,
    /// For how long kernels of the library are checked.
    pub library: Duration,
}

/// Where lines go; only rank 0 has any.
pub(super) type Print<'a> = &'a mut dyn FnMut(&Line);

impl Member {
    /// Checks and times everything. Whether all was right, on all ranks.
    ///
    /// # Errors
    /// The errors of calls.
    pub fn run(&self, settings: &Settings, print: Print<'_>) -> Result<bool, Error> {
        let cases: Vec<Case> =
            timed(settings.checked).into_iter().filter(|case| case.name.contains(&settings.only)).collect();
        let mut right = true;
        for case in &cases {
            right &= self.checked(case, settings.bits, print)?;
        }
        for tokens in &settings.tokens {
            cases.iter().try_for_each(|case| self.time(case, *tokens, settings, print))?;
        }
        right &= self.ring(settings, print)?;
        right &= self.library(settings, print)?;
        right &= self.faults(print)?;
        Ok(right)
    }

    /// Checks kernels of the library as long as there is time.
    fn library(&self, settings: &Settings, print: Print<'_>) -> Result<bool, Error> {
        let (start, mut right) = (Instant::now(), true);
        for case in library()?.iter().filter(|case| case.name.contains(&settings.only)) {
            // All ranks go by the clock of the first.
            if self.gathered(start.elapsed().as_secs_f64())?[0] > settings.library.as_secs_f64() {
                let reason = Some("there was no time for this one and those after it".into());
                self.print(&Line { reason, ..self.line(case, "check", case.checked) }, print);
                break;
            }
            right &= self.checked(case, 2, print)?;
        }
        Ok(right)
    }

    fn checked(&self, case: &Case, runs: usize, print: Print<'_>) -> Result<bool, Error> {
        let line = match self.check(case, runs) {
            Ok(line) => line,
            Err(Error::NotSharded { reason, .. }) => {
                Line { reason: Some(reason), ..self.line(case, "check", case.checked) }
            }
            Err(error) => return Err(error),
        };
        self.print(&line, print);
        Ok(line.is_right())
    }

    /// Compares this rank's results with those of the CPU without other ranks, and all runs with the first.
    fn check(&self, case: &Case, runs: usize) -> Result<Line, Error> {
        let (tokens, inputs) = (case.checked, case.inputs(case.checked)?);
        let part = uneven(tokens, self.all.rank(), self.all.size());
        let shard = Shard::of(case, &inputs, &part, &self.device)?;
        let first = shard.results(Some(&self.all))?;
        let whole = Shard::of(case, &inputs, &(0..tokens), &Device::Cpu)?.results(None)?;
        let (mut error, mut same_bits, mut wrong) = (0.0_f64, true, vec![]);
        for (name, (found, wanted)) in names(case)?.iter().zip(first.iter().zip(&parts_of(case, &whole, &part)?)) {
            let apart = difference(&download(found)?, &download(wanted)?);
            error = worse(error, apart);
            if apart.is_nan() || apart > TOLERANCE {
                wrong.push(format!("{name} {:?}: {apart:e}", found.shape()));
            }
        }
        if !wrong.is_empty() {
            eprintln!("rank {} of {}: wrong {}", self.all.rank(), case.name, wrong.join("; "));
        }
        let sizes: Vec<usize> = (0..self.all.size()).map(|rank| uneven(tokens, rank, self.all.size()).len()).collect();
        // The second run on is one of ranks that know the sizes of all shards.
        let known = self.all.with_shards(&sizes)?;
        for _ in 1..runs {
            let again = shard.results(Some(&known))?;
            same_bits &= first.iter().zip(&again).map(are_same).collect::<Result<Vec<_>, _>>()?.into_iter().all(|x| x);
        }
        let (error, same_bits) = self.agreed(error, same_bits)?;
        let line = self.line(case, "check", tokens);
        Ok(Line { error: Some(error), same_bits: Some(same_bits), runs: Some(runs), ..line })
    }

    /// The largest error of all ranks, and whether all had the same bits.
    pub(super) fn agreed(&self, error: f64, same_bits: bool) -> Result<(f64, bool), Error> {
        let errors = self.gathered(error)?;
        let error = errors.into_iter().fold(0.0, worse);
        Ok((error, self.gathered(f64::from(u8::from(same_bits)))?.iter().all(|same| *same == 1.0)))
    }

    /// The name of this rank's device.
    pub(super) fn name(&self) -> String {
        self.device.to_string().split(", stream").next().unwrap_or_default().to_owned()
    }

    /// A number of every rank. Nobody goes on before all are here.
    pub(super) fn gathered(&self, number: f64) -> Result<Vec<f64>, Error> {
        self.all.all_gather(&Tensor::from_slice(&[number], &[1])?)?.to_vec()
    }

    pub(super) fn line(&self, case: &Case, kind: &'static str, tokens: usize) -> Line {
        let (ranks, device) = (self.all.size(), self.name());
        Line { case: case.name.clone(), kind, ranks, tokens, device, ..Line::default() }
    }

    pub(super) fn print(&self, line: &Line, print: Print<'_>) {
        if self.all.rank() == 0 {
            print(line);
        }
    }
}

/// A rank's part: later ranks have more than earlier ones.
fn uneven(tokens: usize, rank: usize, ranks: usize) -> Range<usize> {
    let border = |rank: usize| tokens * rank * (rank + 1) / (ranks * (ranks + 1));
    border(rank)..border(rank + 1)
}

/// The largest difference, relative to the largest number; of whole numbers and bools infinity, if there is any.
pub(super) fn difference(found: &Data, wanted: &Data) -> f64 {
    let (Data::Float(found), Data::Float(wanted)) = (found, wanted) else {
        return if found == wanted { 0.0 } else { f64::INFINITY };
    };
    let finite = wanted.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let scale = finite.fold(f64::from(f32::MIN_POSITIVE), f64::max);
    let apart = found.iter().zip(wanted).map(|(x, y)| match x == y || x.is_nan() && y.is_nan() {
        true => 0.0,
        false => (x - y).abs() / scale,
    });
    let most = apart.fold(0.0, worse);
    if found.len() == wanted.len() { most } else { f64::NAN }
}

/// The larger of two errors; NaN is the largest.
pub(super) fn worse(most: f64, error: f64) -> f64 {
    if error.is_nan() || error > most { error } else { most }
}

/// The names of the results of a case: outputs, and then parameters with a gradient.
fn names(case: &Case) -> Result<Vec<String>, Error> {
    let outputs = case.program()?.outputs.iter().map(|output| output.name.clone());
    let params = case.float_params()?.into_iter().map(|param| format!("gradient of {}", param.name));
    Ok(outputs.chain(params).collect())
}

pub(super) fn are_same((first, again): (&Tensor, &Tensor)) -> Result<bool, Error> {
    let (first, again) = (download(first)?, download(again)?);
    let bits = |xs: &[f64]| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    Ok(match (&first, &again) {
        (Data::Float(first), Data::Float(again)) => bits(first) == bits(again),
        _ => first == again,
    })
}
