//! By how much the estimates of each kind of schedule are off.

use super::measured::Case;
use super::regret::geometric_mean;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Plans of one launch tell of its schedule alone: a line for each kind of schedule with their number, the geometric mean of time by
/// estimate, and the least and greatest of these ratios.
pub(super) fn report(cases: &[Case]) -> String {
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for plan in cases.iter().flat_map(|case| &case.plans) {
        if let [launch] = &plan.launches[..]
            && let Some(micros) = launch.micros
        {
            ratios.entry(kind(&launch.schedule)).or_default().push(plan.ms * 1e3 / micros);
        }
    }
    let mut text = "time by estimate, of plans of one launch\n".to_owned();
    for (kind, ratios) in &ratios {
        let mean = geometric_mean(ratios.iter().copied());
        let [least, most] =
            [ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max)];
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{kind:28} {:4} plans  mean {mean:.2}  from {least:.2} to {most:.2}", ratios.len());
    }
    text.trim_end().to_owned()
}

/// The kind of a schedule: its name, and its form and its loader where it has several.
fn kind(schedule: &str) -> String {
    let (name, parameters) = schedule.split_once('(').unwrap_or((schedule, ""));
    let of = |parameter: &str| {
        let found = parameters.trim_end_matches(')').split(", ").find_map(|p| p.strip_prefix(parameter));
        found.and_then(|p| p.strip_prefix('=')).map(|value| format!(" {value}"))
    };
    [Some(name.to_owned()), of("form"), of("loader"), of("pass")].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_forms() {
        assert_eq!(kind("columns(lane=0, form=walk, warps=2)"), "columns walk");
        assert_eq!(kind("rows(a=1)"), "rows");
        assert_eq!(kind("map"), "map");
    }

    #[test]
    fn only_plans_of_one_launch_tell_of_a_kind() {
        let call = r#""isa":"sm_90a","multiprocessors":132,"call":{"kernel":"cumsum","elem":"f32","axes":{},"backward":false}"#;
        let one = r#""launches":[{"stage":"s","schedule":"rows(a=1)","micros":100.0}]"#;
        let two = r#""launches":[{"stage":"s","schedule":"map","micros":1.0},{"stage":"t","schedule":"map"}]"#;
        let line = |name: &str, launches: &str, ms: f64| {
            format!("{{\"case\":\"{name}\",{call},\"plan\":\"{name}\",\"ms\":{ms},{launches}}}\n")
        };
        let text = line("a", one, 0.2) + &line("b", one, 0.05) + &line("c", two, 9.0);
        let said = report(&Case::read(&text).unwrap());
        assert!(said.ends_with("rows                            2 plans  mean 1.00  from 0.50 to 2.00"), "{said}");
    }
}
