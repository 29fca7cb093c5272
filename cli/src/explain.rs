//! `oplus explain`.

use crate::Outcome;
use crate::output::say;
use crate::picture;
use crate::programs::{in_sources, named, parse_elem, parse_isa};
use crate::tile::export;
use oplus::explain::CpuPlan;
use oplus::{Device, Kernel, Shapes};
use oplus_codegen::explain::{Explanation, Section, page};
use oplus_codegen::plan::{Call, Launch, Layout, Plan, Planner};
use oplus_codegen::schedules::lower;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};
use oplus_llvm::ptxas::{Assembled, Ptxas, PtxasError};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Prints the equations of a kernel and of its gradient, the launches of both on a GPU with the reasons for each, facts of their
/// PTX, and how the threads of this machine's CPU would share the work.
///
/// The GPU is named by --isa, --multiprocessors and --shared-memory, and need not be here. By default it is an H200, and with
/// --isa sm_80 an A100. Tensors are taken to be contiguous, and all optional parameters to be given.
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
    /// Shared memory that a block of the device may have, in bytes: 232448 on Hopper, 166912 on an A100, 101376 on most others, such
    /// as an RTX 4090.
    #[arg(long, value_name = "BYTES")]
    shared_memory: Option<u32>,
    /// Also draw the plans: tiles, blocks, and what goes from tile to tile.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write all of this as one page of HTML, with pictures whose tiles say what they hold, and the PTX. The page needs no
    /// network and no JavaScript.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the kernels as tile IR into a folder, each with the command that simulates its launch: what `oplus tile` reads.
    #[arg(long, value_name = "FOLDER")]
    tile: Option<PathBuf>,
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
    if programs.is_empty() {
        return Err(format!("there is no kernel in any `scan!` block of {}", path.display()).into());
    }
    check_axes(&programs, &args.shape)?;
    let usual = if args.isa == Isa::Sm90a { Target::H200 } else { Target::A100 };
    let target = Target {
        multiprocessors: args.multiprocessors.unwrap_or(usual.multiprocessors),
        shared_bytes: args.shared_memory.unwrap_or(usual.shared_bytes),
        ..usual
    };
    say!("on a GPU: {target}, whether or not it is here\n");
    let (ptxas, mut sections) = (Ptxas::find(), vec![]);
    let facts = |launch: &Launch| facts(launch, target.isa, ptxas.as_ref().ok());
    for program in programs {
        let gradient = adjoint(&program);
        let forward = explained(&program.instantiate(args.elem), args, &target, &facts)?;
        let [forward_cpu, gradient_cpu] = on_cpu(&program, args)?;
        let forward = forward.and_on_cpu(forward_cpu);
        say!("{}\n", forward.text("").trim_end());
        sections.push(forward.section());
        match gradient {
            Ok(gradient) => {
                let backward =
                    explained(&gradient.instantiate(args.elem), args, &target, &facts)?.and_on_cpu(gradient_cpu);
                say!("{}\n", backward.text("gradient: ").trim_end());
                sections.push(backward.section());
            }
            Err(reason) => say!("no gradient: {reason}\n"),
        }
    }
    if let Err(missing) = ptxas {
        say!("No registers and bytes of machine code: {missing}.");
    }
    write_files(args, &target, &sections)
}

/// How the threads of this machine's CPU would share the work of a kernel and of its gradient.
fn on_cpu(program: &Program, args: &Args) -> Result<[Option<CpuPlan>; 2], Box<dyn Error>> {
    let here = Shapes::new().elem(args.elem).device(&Device::Cpu);
    let size = |shapes: Shapes, (axis, size): &(String, i64)| Ok(shapes.axis(axis, usize::try_from(*size)?));
    let known = args.shape.iter().filter(|(axis, _)| program.axis(axis).is_some());
    let shapes = known.into_iter().try_fold(here, size).map_err(|e: std::num::TryFromIntError| e.to_string())?;
    let explanation = Kernel::from_program(program.clone())?.explain(&shapes)?;
    Ok([explanation.forward.cpu, explanation.gradient.ok().and_then(|gradient| gradient.cpu)])
}

/// Writes the kernels of a plan as tile IR, if that is asked for.
fn write_tile(args: &Args, program: &Program, plan: &Plan, isa: Isa) -> Outcome {
    let Some(folder) = &args.tile else { return Ok(()) };
    let sizes = contiguous_call(program, &args.shape)?.sizes;
    for file in export::write(folder, program, plan, &sizes, isa)? {
        say!("wrote {}", file.display());
    }
    Ok(())
}

/// Writes the picture and the page that were asked for.
fn write_files(args: &Args, target: &Target, sections: &[Section]) -> Outcome {
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &args.svg {
        write(path, picture::draw(sections)?)?;
    }
    if let Some(path) = &args.html {
        write(path, page(&format!("{} on {target}", args.what), sections))?;
    }
    Ok(())
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

/// A program's equations and launches.
struct Explained {
    title: String,
    explanation: Explanation,
    ptx: Vec<String>,
    cpu: Option<CpuPlan>,
}

impl Explained {
    fn and_on_cpu(self, cpu: Option<CpuPlan>) -> Explained {
        Explained { cpu, ..self }
    }

    fn text(&self, whose: &str) -> String {
        let cpu = self.cpu.as_ref().map(|plan| format!("\n\non the CPU\n\n{plan}")).unwrap_or_default();
        format!("{whose}{}\n\n{}{cpu}", self.title, self.explanation.to_string().trim_end())
    }

    fn section(self) -> Section {
        let cpu = self.cpu.map(|plan| plan.to_string());
        Section { cpu, ..Section::new(self.title, self.explanation, self.ptx) }
    }
}

/// Explains a program; `facts` tells what its kernels are once they are compiled.
fn explained(
    program: &Program,
    args: &Args,
    target: &Target,
    facts: &FactsOf<'_>,
) -> Result<Explained, Box<dyn Error>> {
    let plan = Planner::new(program, target)?.plan_sound(&contiguous_call(program, &args.shape)?)?;
    write_tile(args, program, &plan, target.isa)?;
    let mut explanation = Explanation::of(program, &plan);
    let mut texts = vec![];
    for (explained, (launch, _)) in explanation.launches.iter_mut().zip(plan.distinct()) {
        let (facts, ptx) = facts(launch)?;
        explained.facts = facts;
        texts.push(ptx);
    }
    let axes = program.axes.iter();
    let size = |axis: &String| args.shape.iter().find(|(name, _)| name == axis).map(|(_, n)| format!("{axis}={n}"));
    let title = format!("{}, {}", program.name, axes.filter_map(size).collect::<Vec<_>>().join(", "));
    Ok(Explained { title, explanation, ptx: texts, cpu: None })
}

/// The call of a program on contiguous, aligned tensors of a shape.
pub(crate) fn contiguous_call(program: &Program, shape: &[(String, i64)]) -> Result<Call, Box<dyn Error>> {
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

/// Facts of a launch's kernel, each with its name, and its PTX.
type Facts = (Vec<(String, String)>, String);
type FactsOf<'a> = dyn Fn(&Launch) -> Result<Facts, Box<dyn Error>> + 'a;

/// Compiles a launch's kernel and says what has become of it, with `ptxas` also how many registers it takes.
fn facts(launch: &Launch, device: Isa, ptxas: Option<&Ptxas>) -> Result<Facts, Box<dyn Error>> {
    let isa = launch.schedule.isa(device);
    let ptx = oplus_llvm::compile(&lower(&launch.stage, &launch.schedule, isa)?, isa)?;
    let kinds: Vec<String> = instructions(&ptx).into_iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let mut facts = vec![("PTX instructions".to_owned(), kinds.join(", "))];
    if let Some(ptxas) = ptxas {
        facts.push(("machine code".to_owned(), machine_code(ptxas.assemble(&ptx, device))));
    }
    Ok((facts, ptx))
}

fn machine_code(assembled: Result<Assembled, PtxasError>) -> String {
    match assembled {
        Ok(Assembled { facts, .. }) => {
            let oplus_llvm::ptxas::Facts { code, registers, shared, .. } = facts;
            format!("{code} bytes, {registers} registers, no spills, {shared} bytes of static shared memory")
        }
        Err(reason) => reason.to_string(),
    }
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
    use oplus_codegen::explain::Candidate;

    #[test]
    fn instructions_are_counted_by_kind_and_space() {
        let ptx = ".reg .b32 %r<2>;\n\tld.global.nc.v4.b32 {%r1}, [%rd1];\n\t@%p1 st.shared.b32 [%r1], %r2;\n\
                   \tfma.rn.f32 %f1, %f1, %f1, %f1;\n\tld.param.b64 %rd1, [k];\n\tret;\n";
        let counts = instructions(ptx);
        let found: Vec<(&str, usize)> = counts.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(found, [("fma", 1), ("ld.global", 1), ("ld.param", 1), ("ret", 1), ("st.shared", 1)]);
    }

    fn text_of(name: &str, shape: &[(&str, i64)]) -> String {
        let args = Args {
            what: name.into(),
            shape: shape.iter().map(|(axis, size)| ((*axis).to_owned(), *size)).collect(),
            elem: Elem::F32,
            isa: Isa::Sm90a,
            multiprocessors: None,
            shared_memory: None,
            svg: None,
            html: None,
            tile: None,
        };
        let programs = named(oplus_front::library_programs(), &[name.to_owned()]).unwrap();
        let nothing = |_: &Launch| Ok((vec![], String::new()));
        let mut explained = explained(&programs[0].instantiate(Elem::F32), &args, &Target::H200, &nothing).unwrap();
        for launch in &mut explained.explanation.launches {
            // Numbers of schedules and of the cost model are tested elsewhere: fixed text stands for them here.
            launch.candidates =
                vec![Candidate { schedule: "schedule(number=1)".into(), micros: 12.3, why: "its reason".into() }];
            launch.refused = vec![("other(number=1)".into(), "what it lacks".into())];
            (launch.division, launch.grid) = ("how the work is divided".into(), "blocks of threads".into());
            launch.symbol = "symbol".into();
        }
        explained.text("")
    }

    #[test]
    fn equations_come_first_and_then_the_launches() {
        insta::assert_snapshot!(text_of("affine", &[("B", 8), ("T", 4096)]));
    }

    #[test]
    fn there_are_equations_and_no_program_text() {
        let text = text_of("affine", &[("B", 8), ("T", 4096)]);
        assert!(
            text.contains("h[t] = a[t]·h[t−1] + b[t]") && !text.contains('%') && !text.contains("program "),
            "{text}"
        );
    }

    #[test]
    fn sizes_are_an_axis_and_a_number() {
        assert_eq!(parse_size("B=8").unwrap(), ("B".to_owned(), 8));
        assert!(["B", "B=", "B=-1", "B=x"].iter().all(|text| parse_size(text).is_err()));
    }
}
