//! How much slower the planner's choice is than the fastest plan that was measured.

use super::measured::{Case, Measured};
use std::error::Error;
use std::fmt::Write;

/// The regret of one case.
pub(super) struct Regret {
    pub(super) case: String,
    /// The plan that the planner takes.
    chosen: Measured,
    fastest: Measured,
    /// How many plans were measured.
    plans: usize,
}

impl Regret {
    /// Of the plan that the planner takes today.
    pub(super) fn of(case: &Case) -> Result<Regret, Box<dyn Error>> {
        let plan = case.chosen()?;
        let missing =
            || format!("{}: the planner takes {plan}, which was not measured: measure the case again", case.name);
        let chosen = case.plans.iter().find(|measured| measured.plan == plan).ok_or_else(missing)?;
        let fastest = case.fastest().ok_or("a case without times")?;
        let (chosen, fastest, plans) = (chosen.clone(), fastest.clone(), case.plans.len());
        Ok(Regret { case: case.name.clone(), chosen, fastest, plans })
    }

    /// The time of the planner's choice by that of the fastest plan.
    pub(super) fn ratio(&self) -> f64 {
        self.chosen.ms / self.fastest.ms
    }
}

/// A line for each case, the greatest regret first, and the geometric mean.
pub(super) fn report(regrets: &[Regret]) -> String {
    let mut sorted: Vec<&Regret> = regrets.iter().collect();
    sorted.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    let mut text = String::new();
    // Writing to a String cannot fail.
    for regret in sorted {
        let Regret { case, chosen, fastest, plans } = regret;
        let _ = writeln!(text, "{:.3}  {case}: {:.4} ms of {plans} plans", regret.ratio(), chosen.ms);
        if chosen.plan != fastest.plan {
            let _ =
                writeln!(text, "       taken   {}\n       fastest {}, {:.4} ms", chosen.plan, fastest.plan, fastest.ms);
        }
    }
    let mean = geometric_mean(regrets.iter().map(Regret::ratio));
    let _ = writeln!(text, "{mean:.3}  the geometric mean of {} cases", regrets.len());
    text
}

/// The geometric mean; 1 of no numbers.
pub(super) fn geometric_mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, count), x| (sum + x.ln(), count + 1));
    if count == 0 { 1.0 } else { (sum / f64::from(count)).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUMSUM: &str = r#""case":"c","isa":"sm_90a","multiprocessors":132,"call":{"kernel":"cumsum","elem":"f32","axes":{"B":8192,"T":4096},"backward":false}"#;

    fn line(plan: &str, ms: f64) -> String {
        format!("{{{CUMSUM},\"plan\":\"{plan}\",\"ms\":{ms}}}\n")
    }

    #[test]
    fn the_regret_is_that_of_the_plan_taken_today() {
        let case = &Case::read(&line("other", 2.0)).unwrap()[0];
        let missing = Regret::of(case).err().unwrap().to_string();
        assert!(missing.starts_with("c: the planner takes rows("), "{missing}");
        let taken = case.chosen().unwrap();
        let text = line("other", 2.0) + &line(&taken, 3.5) + &line(&taken, 3.0) + "{\"case\":\"copy\",\"ms\":1}\n";
        let cases = Case::read(&text).unwrap();
        assert_eq!((cases.len(), cases[0].plans.len()), (1, 2));
        let regret = Regret::of(&cases[0]).unwrap();
        assert_eq!(regret.ratio(), 1.5);
        let said = report(&[regret]);
        assert!(said.starts_with("1.500  c: 3.0000 ms of 2 plans\n       taken   rows("), "{said}");
        assert!(said.ends_with("fastest other, 2.0000 ms\n1.500  the geometric mean of 1 cases\n"), "{said}");
    }

    #[test]
    fn lines_that_are_not_of_the_form_are_named() {
        let wrong = |text: &str| Case::read(text).err().unwrap().to_string();
        assert!(wrong("\n{").starts_with("line 2 is not JSON"));
        assert!(wrong("{\"case\":\"c\",\"call\":3}").starts_with("line 1: "));
        let other = line("a", 1.0) + &line("b", 1.0).replace("4096", "4097");
        assert_eq!(wrong(&other), "line 2: c is another call above");
        assert_eq!(wrong(&line("a", 1.0).replace("sm_90a", "sm_1")), "line 1: there is no instruction set sm_1");
    }

    #[test]
    fn means_are_geometric() {
        assert_eq!(geometric_mean([].into_iter()), 1.0);
        assert!((geometric_mean([1.0, 4.0].into_iter()) - 2.0).abs() < 1e-12);
    }
}
