//! `oplus explain`.

use crate::Outcome;
use crate::picture::{self, Section};
use crate::programs::{in_sources, named, parse_elem, parse_isa};
use oplus_codegen::explain::Explanation;
use oplus_codegen::lower::lower;
use oplus_codegen::plan::{Call, Choice, Launch, Layout, Plan, plan};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};
use oplus_llvm::ptxas::{Assembled, Ptxas};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Prints what a kernel computes, forward and backward, how it would run, why so, and facts of its PTX.
///
/// Tensors are taken to be contiguous, and all optional parameters to be given.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A standard kernel; or a Rust file, all of whose kernels are explained.
    #[arg(value_name = "NAME|FILE")]
    what: String,
    /// Sizes of the axes, such as B=8,L=4096.
    #[arg(long, value_delimiter = ',', value_parser = parse_size, required = true)]
    shape: Vec<(String, i64)>,
    /// Element type of the call.
    #[arg(long, value_parser = parse_elem, default_value = "f32")]
    elem: Elem,
    /// Instruction set.
    #[arg(long, value_parser = parse_isa, default_value = "sm_90a")]
    isa: Isa,
    /// Streaming multiprocessors of the device.
    #[arg(long)]
    multiprocessors: Option<u32>,
    /// Also draw the plans: tiles, blocks, and what goes from tile to tile.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn parse_size(text: &str) -> Result<(String, i64), String> {
    let wrong = || format!("`{text}` is not an axis and its size, such as L=4096");
    let (axis, size) = text.split_once('=').ok_or_else(wrong)?;
    let size = size.trim().parse().ok().filter(|n| *n >= 0).ok_or_else(wrong)?;
    Ok((axis.trim().to_owned(), size))
}

pub(crate) fn run(args: &Args) -> Outcome {
    let path = PathBuf::from(&args.what);
    let programs = if Path::is_file(&path) || is_path(&args.what) {
        in_sources(&path)?
    } else {
        named(oplus_front::library_programs(), std::slice::from_ref(&args.what))?
    };
    check_axes(&programs, &args.shape)?;
    let mut sections = vec![];
    for program in programs {
        let (text, section) = explained(&program.instantiate(args.elem), args)?;
        println!("{text}");
        sections.push(section);
        match adjoint(&program) {
            Ok(gradient) => {
                let (text, section) = explained(&gradient.instantiate(args.elem), args)?;
                println!("gradient:\n{text}");
                sections.push(section);
            }
            Err(reason) => println!("no gradient: {reason}\n"),
        }
    }
    let write = |path: &PathBuf| Ok(std::fs::write(path, picture::draw(&sections)?)?);
    args.svg.as_ref().map_or(Ok(()), write)
}

/// Whether this names a file or a folder rather than a kernel.
fn is_path(what: &str) -> bool {
    what.ends_with(".rs") || what.contains(std::path::is_separator)
}

/// Every axis that has a size is one of some program.
fn check_axes(programs: &[Program], shape: &[(String, i64)]) -> Outcome {
    let known: BTreeSet<&str> = programs.iter().flat_map(|program| &program.axes).map(String::as_str).collect();
    match shape.iter().find(|(axis, _)| !known.contains(axis.as_str())) {
        Some((axis, _)) => {
            let known: Vec<&str> = known.into_iter().collect();
            Err(format!("--shape names axis {axis}, which no kernel here has; their axes are {}", known.join(", "))
                .into())
        }
        None => Ok(()),
    }
}

/// A program's equations, and its launches with the reasons for each; and the picture of them.
fn explained(program: &Program, args: &Args) -> Result<(String, Section), Box<dyn Error>> {
    let usual = if args.isa == Isa::Sm90a { Target::H200 } else { Target::A100 };
    let target = Target { multiprocessors: args.multiprocessors.unwrap_or(usual.multiprocessors), ..usual };
    let plan = plan(program, &contiguous_call(program, &args.shape)?, &target)?;
    let mut text = format!("{program}\n");
    for (number, launch) in plan.steps.iter().enumerate() {
        text += &format!("launch {}: {}\n", number + 1, launch_text(launch, args.isa)?);
        let reasons = plan.choices.iter().filter(|c| c.step == Some(number));
        text.extend(reasons.map(choice_text));
    }
    let axes = program.axes.iter();
    let size = |axis: &String| args.shape.iter().find(|(name, _)| name == axis).map(|(_, n)| format!("{axis}={n}"));
    let title = format!("{}, {}", program.name, axes.filter_map(size).collect::<Vec<_>>().join(", "));
    Ok((text + &memory_text(&plan), Section::new(title, Explanation::of(program, &plan), &plan)))
}

/// The call of a program on contiguous, aligned tensors of a shape.
fn contiguous_call(program: &Program, shape: &[(String, i64)]) -> Result<Call, Box<dyn Error>> {
    let size = |axis: &String| {
        let found = shape.iter().find(|(name, _)| name == axis).map(|(_, size)| *size);
        found.ok_or_else(|| format!("--shape lacks axis {axis}; `{}` has {}", program.name, program.axes.join(", ")))
    };
    let sizes = program.axes.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let layout = |axes: &[Axis]| {
        let mut stride = 1_i64;
        let mut strides: Vec<i64> = axes
            .iter()
            .rev()
            .map(|a| {
                let own = stride;
                stride = stride.saturating_mul(sizes[a.0 as usize].max(1));
                own
            })
            .collect();
        strides.reverse();
        Layout { strides, align: 16 }
    };
    let params = program.params.iter().map(|p| Some(layout(&p.axes))).collect();
    let outputs = program.outputs.iter().map(|o| layout(&o.axes)).collect();
    Ok(Call { params, outputs, sizes })
}

fn launch_text(launch: &Launch, isa: Isa) -> Result<String, Box<dyn Error>> {
    let isa = launch.schedule.isa(isa);
    let kernel = lower(&launch.stage, &launch.schedule, isa)?;
    let ptx = oplus_llvm::compile(&kernel, isa)?;
    let [x, y, z] = launch.grid;
    let grid =
        format!("{x}×{y}×{z} blocks of {} threads, {} bytes of shared memory", launch.threads, launch.shared_bytes);
    let facts = match Ptxas::find().and_then(|ptxas| ptxas.assemble(&ptx, isa)) {
        Ok(Assembled { facts, .. }) => {
            format!("{} registers, {} bytes of machine code, no spills", facts.registers, facts.code)
        }
        Err(reason) => reason.to_string(),
    };
    let kinds: Vec<String> = instructions(&ptx).into_iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    Ok(format!(
        "{}\n  kernel {}\n  {grid}\n  {facts}\n  PTX instructions: {}\n",
        launch.schedule,
        launch.symbol,
        kinds.join(", ")
    ))
}

fn choice_text(choice: &Choice) -> String {
    let candidates = choice.candidates.iter().map(|c| format!("  {:.1} µs  {}: {}\n", c.micros, c.schedule, c.why));
    let refused = choice.refused.iter().map(|(schedule, reason)| format!("  not {schedule}: {reason}\n"));
    candidates.chain(refused).collect()
}

fn memory_text(plan: &Plan) -> String {
    let bytes: u64 = plan.buffers.iter().map(|b| b.len * b.elem.bytes().unwrap_or(0) as u64).sum();
    format!("{bytes} bytes of temporary tensors, {} message words\n", plan.message_words)
}

/// How often each kind of instruction stands in a PTX text; memory accesses by their space.
fn instructions(ptx: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let code = ptx.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.starts_with('.'));
    for line in code {
        let mut words = line.split_whitespace().filter(|word| !word.starts_with('@'));
        let word = words.next().unwrap_or("");
        let mut parts = word.trim_end_matches(';').split('.');
        let name = parts.next().unwrap_or("");
        let space = parts.find(|p| matches!(*p, "global" | "shared" | "param")).map(|s| format!(".{s}"));
        let memory = matches!(name, "ld" | "st" | "atom");
        *counts.entry(format!("{name}{}", space.filter(|_| memory).unwrap_or_default())).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_by_kind_and_space() {
        let ptx = ".reg .b32 %r<2>;\n\tld.global.nc.v4.b32 {%r1}, [%rd1];\n\t@%p1 st.shared.b32 [%r1], %r2;\n\
                   \tfma.rn.f32 %f1, %f1, %f1, %f1;\n\tld.param.b64 %rd1, [k];\n\tret;\n";
        let counts = instructions(ptx);
        let found: Vec<(&str, usize)> = counts.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(found, [("fma", 1), ("ld.global", 1), ("ld.param", 1), ("ret", 1), ("st.shared", 1)]);
    }

    #[test]
    fn sizes_are_an_axis_and_a_number() {
        assert_eq!(parse_size("B=8").unwrap(), ("B".to_owned(), 8));
        assert!(["B", "B=", "B=-1", "B=x"].iter().all(|text| parse_size(text).is_err()));
    }
}
