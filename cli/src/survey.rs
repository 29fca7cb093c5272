//! `oplus survey`.

use crate::Outcome;
use crate::library::Variant;
use crate::models::settings_variants;
use crate::output::say;
use crate::pressure::{Pressure, Registers, Shape};
use crate::programs::{all_variants, in_sources, named, parse_elem, parse_isa};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::lookback::registers;
use oplus_codegen::schedules::lower;
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_llvm::ptxas::{Facts, Ptxas, PtxasError};
use rayon::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Operators as users write them.
const OPERATORS: &str = include_str!("../survey/operators.rs");

/// Prints the registers that `ptxas` reports of kernels, and how many bytes spill.
///
/// The planner's estimates of look-back were fitted to these reports and stand beside them. A line is a kernel: program,
/// instruction set, schedule, registers as estimated and as reported, bytes that spill.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rust file, or folder of Rust files, whose `scan!` blocks are surveyed instead of a set of operators of 2 to 16 fields.
    #[arg(long, value_name = "PATH")]
    source: Option<PathBuf>,
    /// Only the kernel of this name. May be repeated.
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// Element types of calls.
    #[arg(long, value_delimiter = ',', value_parser = parse_elem, default_value = "f32,f64")]
    elem: Vec<Elem>,
    /// Instruction sets.
    #[arg(long, value_delimiter = ',', value_parser = parse_isa, default_value = "sm_80,sm_90a")]
    isa: Vec<Isa>,
    /// Kinds of schedules, such as lookback, rows or columns.
    #[arg(long, value_delimiter = ',', default_value = "lookback")]
    schedule: Vec<String>,
    /// Survey the kernels of the standard models that `oplus generate` considers instead, under all kinds of schedules.
    #[arg(long, conflicts_with_all = ["source", "kernel", "elem", "isa", "schedule"])]
    models: bool,
    /// Also write registers and spills as a table, such as cli/survey/pressure.tsv.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let ptxas = Ptxas::find()?;
    let mut variants = if args.models { settings_variants()? } else { surveyed(args)? };
    variants.sort_by_cached_key(|variant| (variant.stage.program.name.clone(), variant.schedule.to_string()));
    let reports: Vec<Result<Facts, String>> =
        variants.par_iter().with_max_len(1).map(|variant| facts(variant, &ptxas)).collect();
    for (variant, report) in variants.iter().zip(&reports) {
        say!("{}", line(variant, report));
    }
    let spilling = reports.iter().flatten().filter(|facts| spilled(facts) > 0).count();
    say!("{} kernels, {spilling} spill", variants.len());
    args.table.as_ref().map_or(Ok(()), |path| write_table(path, &variants, &reports))
}

/// The kernels that the command line names.
fn surveyed(args: &Args) -> Result<Vec<Variant>, Box<dyn Error>> {
    let programs = match &args.source {
        Some(path) => in_sources(path)?,
        None => oplus_front::scan_source_file(OPERATORS)?,
    };
    let mut variants = all_variants(&named(programs, &args.kernel)?, &args.elem, &args.isa)?;
    variants.retain(|variant| args.schedule.iter().any(|kind| kind == variant.schedule.name()));
    Ok(variants)
}

/// Writes the table of the kernels that could be made.
fn write_table(path: &Path, variants: &[Variant], reports: &[Result<Facts, String>]) -> Outcome {
    let mut table = Pressure::default();
    for (variant, report) in variants.iter().zip(reports) {
        if let Ok(facts) = report {
            let registers = Registers { count: facts.registers, spilled: spilled(facts) };
            table.insert(Shape::of(&variant.stage, &variant.schedule, variant.isa), registers);
        }
    }
    std::fs::write(path, table.to_string()).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// The report of `ptxas` on a kernel, or why there is none.
fn facts(variant: &Variant, ptxas: &Ptxas) -> Result<Facts, String> {
    let Variant { stage, schedule, isa } = variant;
    let kernel = lower(stage, schedule, *isa).map_err(|e| e.to_string())?;
    let code = oplus_llvm::compile(&kernel, *isa).map_err(|e| e.to_string())?;
    let device = isa.devices(kernel.shared_layout().1).next().unwrap_or(*isa);
    match ptxas.assemble(&code, device) {
        Ok(assembled) => Ok(assembled.facts),
        Err(PtxasError::Spills(facts)) => Ok(facts),
        Err(other) => Err(other.to_string()),
    }
}

/// Bytes that spill, or are kept in local memory.
fn spilled(facts: &Facts) -> u32 {
    facts.spills.max(facts.stack)
}

fn line(variant: &Variant, report: &Result<Facts, String>) -> String {
    let estimate = match &variant.schedule {
        Schedule::LookBack(s) => registers(&variant.stage, s).to_string(),
        _ => "-".to_owned(),
    };
    let found = match report {
        Ok(facts) => format!("{}\t{}", facts.registers, spilled(facts)),
        Err(reason) => reason.clone(),
    };
    let program = &variant.stage.program.name;
    format!("{program}\t{}\t{}\t{estimate}\t{found}", variant.isa.name(), variant.schedule)
}
