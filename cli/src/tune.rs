//! `oplus tune`.

mod fit;
mod measured;
mod regret;
mod scale;

use crate::Outcome;
use crate::output::say;
use measured::Case;
use oplus_codegen::schedules::Constants;
use regret::Regret;
use std::path::{Path, PathBuf};

/// Compares the planner's choices with measurements.
///
/// The files hold the lines of `oplus-bench --more COUNT`: for each case the times of several plans. Of every case this prints the plan
/// that the planner takes, the fastest one that was measured, and the regret: the time of the first by that of the second. Then it
/// prints by how much the estimates of each kind of schedule are off.
///
/// With `--fit` it looks for constants of the cost model that fit the measurements better, and writes them as a table. The planner's
/// own table is `codegen/src/schedules/constants.tsv`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of measurements.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Compare with what the planner takes of the committed kernels, where no others can be compiled.
    #[arg(long)]
    committed: bool,
    /// Fail where a regret is above this.
    #[arg(long, value_name = "RATIO")]
    most: Option<f64>,
    /// Fail where the geometric mean of the regrets is above this.
    #[arg(long, value_name = "RATIO")]
    most_of_all: Option<f64>,
    /// Write constants that fit the measurements better to this table.
    #[arg(long, value_name = "TABLE")]
    fit: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut text = String::new();
    for file in &args.files {
        text += &std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        text.push('\n');
    }
    let mut cases = Case::read(&text)?;
    cases.iter_mut().for_each(|case| case.committed = args.committed);
    let regrets = cases.iter().map(Regret::of).collect::<Result<Vec<_>, _>>()?;
    say!("{}", regret::report(&regrets).trim_end());
    say!("\n{}", scale::report(&cases));
    if let Some(table) = &args.fit {
        fit(&cases, table)?;
    }
    check(args, &regrets)
}

/// Writes the table of the constants that fit best.
fn fit(cases: &[Case], table: &Path) -> Outcome {
    let start = Constants::committed();
    let (constants, [before, after]) = fit::fitted(cases, start)?;
    say!(
        "\nregrets before: mean {:.3}, at most {:.3}; after: mean {:.3}, at most {:.3}",
        before.mean,
        before.most,
        after.mean,
        after.most
    );
    for ((name, old), new) in Constants::NAMES.iter().zip(start.numbers()).zip(constants.numbers()) {
        if old != new {
            say!("{name}: {old} becomes {new}");
        }
    }
    std::fs::write(table, constants.table()).map_err(|e| format!("cannot write {}: {e}", table.display()))?;
    Ok(())
}

/// The bounds that the command line sets.
fn check(args: &Args, regrets: &[Regret]) -> Outcome {
    let above: Vec<&str> =
        regrets.iter().filter(|r| args.most.is_some_and(|most| r.ratio() > most)).map(|r| r.case.as_str()).collect();
    if !above.is_empty() {
        return Err(format!("the regret is above {} for {}", args.most.unwrap_or(1.0), above.join(", ")).into());
    }
    let mean = regret::geometric_mean(regrets.iter().map(Regret::ratio));
    match args.most_of_all {
        Some(most) if mean > most => {
            Err(format!("the geometric mean of the regrets is {mean:.3}, above {most}").into())
        }
        _ => Ok(()),
    }
}
