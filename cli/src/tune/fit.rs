//! Constants of the cost model from measurements.

use super::measured::{Case, taken};
use super::regret::geometric_mean;
use oplus_codegen::plan::{Call, Plan, Planner};
use oplus_codegen::schedules::{Constants, Schedule};
use std::collections::BTreeSet;
use std::error::Error;

/// A constant is tried at these multiples of its value, the farthest first: they show which cases it concerns.
const STEPS: [f64; 4] = [0.75, 1.3, 0.92, 1.08];
/// How many of the steps show that.
const SHOWING: usize = 2;
/// How often all constants are tried at most.
const ROUNDS: usize = 4;
/// The weight of an estimate's error beside that of a regret: both are squares of logarithms, each in the mean.
const ESTIMATES: f64 = 0.01;
/// A change must improve a fit by more than this.
const LEAST: f64 = 1e-9;

/// A case that is planned again and again.
struct Fitted<'c> {
    case: &'c Case,
    planner: Planner,
    call: Call,
    fastest: f64,
    /// The plans of one launch that were measured: their schedules and their times.
    single: Vec<(Schedule, f64)>,
}

/// A case under some constants: the regret of its choice, and time by estimate of plans of one launch.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    regret: f64,
    ratios: Vec<f64>,
}

/// How well some constants fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// The geometric mean of the regrets.
    pub(super) mean: f64,
    /// The greatest regret.
    pub(super) most: f64,
    /// The number that a fit makes least.
    error: f64,
}

/// The constants that fit measurements best of those that are found from `start`; how well the start fits, and how well they do. Each
/// constant is changed for itself, over and over, as long as choices get faster or estimates nearer to the times of their plans. No
/// change may give a plan that was not measured, a greater regret than the start has, or a greater mean.
pub(super) fn fitted(cases: &[Case], start: &Constants) -> Result<(Constants, [Fit; 2]), Box<dyn Error>> {
    let mut all = cases.iter().map(Fitted::of).collect::<Result<Vec<_>, _>>()?;
    let unmeasured = "the planner takes plans that were not measured: measure the cases again";
    let mut outcomes = outcomes(&mut all, start)?.ok_or(unmeasured)?;
    let before = Fit::of(&outcomes);
    let (mut best, mut least) = (*start, before);
    let mut concerned: Vec<Vec<usize>> = vec![(0..all.len()).collect(); Constants::NAMES.len()];
    for _ in 0..ROUNDS {
        let so_far = least.error;
        for (place, concerned) in concerned.iter_mut().enumerate() {
            let mut seen = BTreeSet::new();
            for (number, step) in STEPS.into_iter().enumerate() {
                if number == SHOWING {
                    concerned.retain(|k| seen.contains(k));
                }
                let changed = with_step(&best, place, step);
                let mut next = outcomes.clone();
                let mut is_measured = true;
                for k in concerned.iter() {
                    let own = all[*k].outcome(&changed)?;
                    if own.as_ref() != Some(&outcomes[*k]) {
                        seen.insert(*k);
                    }
                    match own {
                        Some(own) => next[*k] = own,
                        None => is_measured = false,
                    }
                }
                let own = Fit::of(&next);
                let is_allowed = is_measured && own.mean <= before.mean && own.most <= before.most;
                if is_allowed && own.error < least.error - LEAST {
                    (best, least, outcomes) = (changed, own, next);
                }
            }
        }
        if least.error == so_far {
            break;
        }
    }
    Ok((best, [before, least]))
}

/// The constants with one of them at a multiple of its value, to three digits, as the table has it.
fn with_step(constants: &Constants, place: usize, step: f64) -> Constants {
    let mut changed = *constants;
    if let Some(own) = changed.numbers_mut().into_iter().nth(place) {
        *own = rounded(*own * step);
    }
    changed
}

/// A number to three digits.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

/// All cases under some constants; `None` where a choice was not measured.
fn outcomes(cases: &mut [Fitted<'_>], constants: &Constants) -> Result<Option<Vec<Outcome>>, Box<dyn Error>> {
    cases.iter_mut().map(|own| own.outcome(constants)).collect()
}

impl Fit {
    fn of(outcomes: &[Outcome]) -> Fit {
        let square = |ratios: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = ratios.fold((0.0, 0_u32), |(sum, count), ratio| (sum + ratio.ln().powi(2), count + 1));
            sum / f64::from(count.max(1))
        };
        let regrets = || outcomes.iter().map(|own| own.regret);
        let ratios = &mut outcomes.iter().flat_map(|own| own.ratios.iter().copied());
        let error = square(&mut regrets()) + ESTIMATES * square(ratios);
        Fit { mean: geometric_mean(regrets()), most: regrets().fold(1.0, f64::max), error }
    }
}

impl Fitted<'_> {
    fn of(case: &Case) -> Result<Fitted<'_>, Box<dyn Error>> {
        let (planner, call) = case.planner()?;
        let fastest = case.fastest().ok_or("a case without times")?.ms;
        let single = case.plans.iter().filter_map(|measured| Some((measured.plan.parse().ok()?, measured.ms)));
        let single = single.collect();
        Ok(Fitted { case, planner, call, fastest, single })
    }

    /// The case under some constants; `None` where the planner's choice was not measured.
    fn outcome(&mut self, constants: &Constants) -> Result<Option<Outcome>, Box<dyn Error>> {
        self.planner.set_constants(constants);
        let plan = self.planner.plan(&self.call)?;
        let chosen = taken(&plan);
        let measured = self.case.plans.iter().find(|measured| measured.plan == chosen);
        Ok(measured.map(|measured| Outcome { regret: measured.ms / self.fastest, ratios: self.ratios(&plan) }))
    }

    /// Time by estimate, of the plans of one launch that were measured and that the plan's cut has.
    fn ratios(&self, plan: &Plan) -> Vec<f64> {
        let [choice] = &plan.choices[..] else { return vec![] };
        let of = |(schedule, ms): &(Schedule, f64)| {
            let estimate = choice.candidates.iter().find(|estimate| estimate.schedule == *schedule)?;
            Some(ms * 1e3 / estimate.micros)
        };
        self.single.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case whose choice was measured, and is not the fastest; its estimate is off by a factor of two.
    fn cases() -> Vec<Case> {
        let call = r#""case":"c","isa":"sm_90a","multiprocessors":132,"call":{"kernel":"cumsum","elem":"f32","axes":{"B":8192,"T":4096},"backward":false}"#;
        let line = |plan: &str, ms: f64| format!("{{{call},\"plan\":\"{plan}\",\"ms\":{ms}}}\n");
        let case = &Case::read(&line("none", 1.0)).unwrap()[0];
        let (planner, own) = case.planner().unwrap();
        let plan = planner.plan(&own).unwrap();
        let text: String = plan.choices[0]
            .candidates
            .iter()
            .enumerate()
            .map(|(k, of)| line(&of.schedule.to_string(), of.micros * if k == 1 { 1e-3 } else { 2e-3 }))
            .collect();
        Case::read(&text).unwrap()
    }

    #[test]
    fn a_fit_makes_choices_faster_or_estimates_nearer_and_no_regret_greater() {
        let (cases, start) = (cases(), Constants::committed());
        let (constants, [before, after]) = fitted(&cases, start).unwrap();
        assert!(before.most > 1.0 && after.error < before.error, "{before:?} {after:?}");
        assert!(after.most <= before.most && after.mean <= before.mean, "{before:?} {after:?}");
        assert_eq!(Constants::parse(&constants.table()), Ok(constants));
        assert_ne!(constants, *start);
    }

    #[test]
    fn a_choice_that_was_not_measured_is_said() {
        let mut cases = cases();
        cases[0].plans.truncate(0);
        assert!(fitted(&cases, Constants::committed()).err().unwrap().to_string().contains("without times"));
        let mut cases = self::cases();
        cases[0].plans.remove(0);
        let said = fitted(&cases, Constants::committed()).err().unwrap().to_string();
        assert!(said.contains("not measured"), "{said}");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([1234.5, 0.012_345, 3.0].map(rounded), [1230.0, 0.0123, 3.0]);
    }
}
