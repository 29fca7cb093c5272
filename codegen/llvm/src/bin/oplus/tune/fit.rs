//! Constants of the cost model from measurements.

use super::measured::{Case, taken};
use super::regret::geometric_mean;
use oplus_codegen::plan::{Call, Plan, Planner};
use oplus_codegen::schedules::Constants;
use std::error::Error;

/// A constant is tried at these multiples of its value.
const STEPS: [f64; 4] = [0.75, 0.92, 1.08, 1.3];
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

/// The constants that fit measurements best of those that are found from `start`, how well that fits, and how well the start does. Each
/// constant is changed for itself, over and over, as long as choices get faster or estimates nearer to the times of their plans. No
/// change may give a plan that was not measured, a greater regret than the start has, or a greater mean.
pub(super) fn fitted(cases: &[Case], start: &Constants) -> Result<(Constants, [Fit; 2]), Box<dyn Error>> {
    let mut all = cases.iter().map(Fitted::of).collect::<Result<Vec<_>, _>>()?;
    let before =
        fit(&mut all, start)?.ok_or("the planner takes plans that were not measured: measure the cases again")?;
    let (mut best, mut least) = (*start, before);
    for _ in 0..ROUNDS {
        let so_far = least.error;
        for place in 0..Constants::NAMES.len() {
            for step in STEPS {
                let mut changed = best;
                if let Some(own) = changed.numbers_mut().into_iter().nth(place) {
                    *own = rounded(*own * step);
                }
                let is_allowed = |fit: &Fit| fit.mean <= before.mean && fit.most <= before.most;
                if let Some(own) = fit(&mut all, &changed)?.filter(is_allowed)
                    && own.error < least.error - LEAST
                {
                    (best, least) = (changed, own);
                }
            }
        }
        if least.error == so_far {
            break;
        }
    }
    Ok((best, [before, least]))
}

/// How well constants fit; `None` where a choice was not measured.
fn fit(cases: &mut [Fitted<'_>], constants: &Constants) -> Result<Option<Fit>, Box<dyn Error>> {
    let (mut regrets, mut errors) = (vec![], vec![]);
    for own in cases {
        own.planner.set_constants(constants);
        let plan = own.planner.plan(&own.call)?;
        let chosen = taken(&plan);
        let Some(measured) = own.case.plans.iter().find(|measured| measured.plan == chosen) else { return Ok(None) };
        regrets.push(measured.ms / own.fastest);
        errors.extend(own.errors(&plan));
    }
    let square =
        |ratios: &[f64]| ratios.iter().map(|ratio| ratio.ln().powi(2)).sum::<f64>() / ratios.len().max(1) as f64;
    let error = square(&regrets) + ESTIMATES * square(&errors);
    let most = regrets.iter().copied().fold(1.0, f64::max);
    Ok(Some(Fit { mean: geometric_mean(regrets.into_iter()), most, error }))
}

/// A number to three digits, as the table has it.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

impl Fitted<'_> {
    fn of(case: &Case) -> Result<Fitted<'_>, Box<dyn Error>> {
        let (planner, call) = case.planner()?;
        let fastest = case.fastest().ok_or("a case without times")?.ms;
        Ok(Fitted { case, planner, call, fastest })
    }

    /// Time by estimate, of the plans of one launch that were measured and that the plan's cut has.
    fn errors(&self, plan: &Plan) -> Vec<f64> {
        let [choice] = &plan.choices[..] else { return vec![] };
        let of = |estimate: &oplus_codegen::plan::Estimate| {
            let text = estimate.schedule.to_string();
            let measured = self.case.plans.iter().find(|measured| measured.plan == text)?;
            Some(measured.ms * 1e3 / estimate.micros)
        };
        choice.candidates.iter().filter_map(of).collect()
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
