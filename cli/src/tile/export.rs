//! `oplus explain --tile`: the kernels of a plan as files that `oplus tile` reads.

use oplus_codegen::plan::{Arg, Launch, Plan};
use oplus_codegen::schedules::lower;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Param, ParamKind};
use oplus_dsl::ir::{Axis, Program};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Writes every kernel of a plan into a folder; gives the files.
pub(crate) fn write(
    folder: &Path,
    program: &Program,
    plan: &Plan,
    sizes: &[i64],
    isa: Isa,
) -> Result<BTreeSet<PathBuf>, Box<dyn Error>> {
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
    let mut files = BTreeSet::new();
    for (step, launch) in plan.steps.iter().enumerate() {
        let kernel = lower(&launch.stage, &launch.schedule, launch.schedule.isa(isa))?;
        let path = folder.join(format!("{}.tile", launch.symbol));
        let call = Called { program, plan, sizes, launch, before: &plan.steps[..step] };
        let text = format!("{}{kernel}", call.comment(&kernel.params));
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        files.insert(path);
    }
    Ok(files)
}

/// A launch of a call.
struct Called<'a> {
    program: &'a Program,
    plan: &'a Plan,
    sizes: &'a [i64],
    launch: &'a Launch,
    /// The launches before it.
    before: &'a [Launch],
}

impl Called<'_> {
    /// The kernel in words, and the command that simulates this launch.
    fn comment(&self, params: &[Param]) -> String {
        let Launch { stage, schedule, symbol, grid: [x, y, _], .. } = self.launch;
        let args = params.iter().zip(&self.launch.args).filter_map(|(param, arg)| self.argument(param, *arg));
        let args: String = args.map(|arg| format!(" \\\n//     --arg '{arg}'")).collect();
        let name = &stage.program.name;
        format!("// {name}, {schedule}\n// oplus tile {symbol}.tile --simulate --grid {x},{y}{args}\n")
    }

    /// An argument as the command line takes it; none for what need not be given.
    fn argument(&self, param: &Param, arg: Arg) -> Option<String> {
        let value = match arg {
            Arg::Param(i) => self.elements(param, arg, self.count(&self.program.params[i as usize].axes)),
            Arg::Output(i) => self.elements(param, arg, self.count(&self.program.outputs[i as usize].axes)),
            Arg::Buffer(i) => self.elements(param, arg, self.plan.buffers[i as usize].len),
            Arg::Residual | Arg::Control => return None,
            Arg::Messages => format!("words:{}", self.plan.message_words),
            Arg::I32(n) => n.to_string(),
            Arg::I64(n) => n.to_string(),
        };
        Some(format!("{}={value}", param.name))
    }

    fn count(&self, axes: &[Axis]) -> u64 {
        axes.iter().map(|axis| self.sizes[axis.0 as usize] as u64).fold(1, u64::saturating_mul)
    }

    /// Elements for a parameter: random ones to be read, none to be written, unless a launch before has written some.
    fn elements(&self, param: &Param, arg: Arg, count: u64) -> String {
        let is_known = self.before.iter().any(|launch| launch.args.contains(&arg));
        let is_written = matches!(param.kind, ParamKind::Write(_));
        format!("{}:{count}", if is_written && !is_known { "empty" } else { "random" })
    }
}
