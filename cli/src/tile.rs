//! `oplus tile`.

mod arguments;
pub(crate) mod export;
mod simulate;

use crate::Outcome;
use crate::output::say;
use crate::programs::parse_isa;
use arguments::Given;
use oplus_codegen::target::{Isa, Target};
use oplus_codegen::tile::path::Path;
use oplus_codegen::tile::{Kernel, Source, Stmt};
use oplus_codegen::verify::verify;
use std::path::PathBuf;

/// Checks a kernel that is written as tile IR, runs it in the simulator, or compiles it to PTX.
///
/// The file has one kernel in the text form that the documentation of `oplus_codegen::tile::text` specifies; `oplus explain
/// … --tile FOLDER` writes such files. A kernel that breaks a rule of the tile IR is refused, with the line of each fault.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel's text.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Instruction set.
    #[arg(long, value_parser = parse_isa, default_value = "sm_90a")]
    isa: Isa,
    /// Print the kernel's PTX.
    #[arg(long, conflicts_with = "simulate")]
    ptx: bool,
    /// Run the kernel on the CPU, in the order of its blocks and warps, in the opposite one and in random ones. What the kernel must
    /// not do is an error: accesses outside of arrays, races, deadlocks, results that differ between orders.
    #[arg(long)]
    simulate: bool,
    /// With --simulate: blocks along x, or along x and y.
    #[arg(long, value_name = "X[,Y]", value_parser = simulate::parse_grid, default_value = "1", requires = "simulate")]
    grid: [u32; 2],
    /// With --simulate: what a parameter is given. A number, or elements: `iota:N` (0, 1, 2, …), `zeros:N`, `ones:N`, `fill:X:N`,
    /// `random:N` (between -1 and 1), `values:1,2,3`, or `empty:N`, which must be written before they are read. Messages and
    /// control words need not be given; `words:N` says how many messages there may be.
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = arguments::parse, requires = "simulate")]
    args: Vec<(String, Given)>,
    /// With --simulate: how many random orders there are.
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "simulate")]
    orders: u64,
    /// With --simulate: how many blocks run at once.
    #[arg(long, value_name = "BLOCKS", default_value_t = 4, requires = "simulate")]
    resident: usize,
    /// With --simulate: print so many elements of each result.
    #[arg(long, value_name = "COUNT", default_value_t = 16, requires = "simulate")]
    show: usize,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let name = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).map_err(|e| format!("cannot read {name}: {e}"))?;
    let source = Source::parse(&text).map_err(|e| format!("{name}:{e}"))?;
    check(&source, &name, args.isa)?;
    if args.ptx {
        print!("{}", oplus_llvm::compile(&source.kernel, args.isa)?);
        return Ok(());
    }
    if args.simulate {
        let how = simulate::How { grid: args.grid, orders: args.orders, resident: args.resident, show: args.show };
        print!("{}", simulate::run(&Place { source: &source, name: &name }, &args.args, &how)?);
        return Ok(());
    }
    say!("{}", summary(&source.kernel, args.isa));
    Ok(())
}

/// A text that was read, and the name of its file.
struct Place<'a> {
    source: &'a Source,
    name: &'a str,
}

impl Place<'_> {
    /// `file:line`, where a statement stands.
    fn of(&self, path: &Path) -> String {
        format!("{}:{}", self.name, self.source.line(path))
    }
}

/// Every rule that the kernel breaks, each with its line.
fn check(source: &Source, name: &str, isa: Isa) -> Result<(), String> {
    let place = Place { source, name };
    verify(&source.kernel, &Target { isa, ..Target::H200 }).map_err(|faults| {
        let of = |fault: &oplus_codegen::verify::VerifyError| {
            let line = if fault.line.is_empty() { String::new() } else { format!(" `{}`", fault.line) };
            format!("{}:{line} {}", place.of(&fault.path), fault.fault)
        };
        faults.iter().map(of).collect::<Vec<_>>().join("\n")
    })
}

/// A sound kernel in one line.
fn summary(kernel: &Kernel, isa: Isa) -> String {
    let (_, shared) = kernel.shared_layout();
    format!(
        "{}: sound for {}; {} statements, {} registers of the tile IR, {} threads, {shared} bytes of shared memory",
        kernel.name,
        isa.name(),
        statements(&kernel.body),
        kernel.regs.len(),
        kernel.threads
    )
}

/// Statements, those inside others counted.
fn statements(list: &[Stmt]) -> usize {
    let inside = |stmt: &Stmt| match stmt {
        Stmt::If { then, otherwise, .. } => statements(then) + statements(otherwise),
        Stmt::For { body, .. } | Stmt::Loop(body) => statements(body),
        _ => 0,
    };
    list.iter().map(|stmt| 1 + inside(stmt)).sum()
}
