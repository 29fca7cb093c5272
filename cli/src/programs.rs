//! Where commands take programs from, and the forms in which calls run them.

use crate::library::{Batch, Built, Checks, Variant, build};
use indicatif::{ProgressBar, ProgressStyle};
use oplus_codegen::plan::{self, cuts, variants};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::stage::{Stage, cut_ordered};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::alternative::choose;
use oplus_dsl::ir::{Op, Param, Program};
use oplus_dsl::shard::{ShardError, shard, shard_in_segments};
use oplus_dsl::specialize::{for_call, keep_outputs};
use oplus_dsl::step::step;
use oplus_dsl::typing::TypeError;
use std::error::Error;
use std::path::{Path, PathBuf};

/// The programs of all `scan!` blocks in a file, or in the Rust files of a folder.
pub(crate) fn in_sources(path: &Path) -> Result<Vec<Program>, Box<dyn Error>> {
    let mut programs = vec![];
    for file in rust_files(path)? {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let found = oplus_front::scan_source_file(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        programs.extend(found);
    }
    Ok(programs)
}

/// The Rust files under a path, in order of their names; build output and hidden folders are left out.
fn rust_files(path: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let listed = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut entries = listed.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    let mut files = vec![];
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            files.extend(rust_files(&entry)?);
        } else if entry.is_file() && name.ends_with(".rs") {
            files.push(entry);
        }
    }
    Ok(files)
}

/// Only the programs of these names; all when there are none.
pub(crate) fn named(mut programs: Vec<Program>, names: &[String]) -> Result<Vec<Program>, Box<dyn Error>> {
    if let Some(unknown) = names.iter().find(|name| programs.iter().all(|p| p.name != **name)) {
        let known: Vec<&str> = programs.iter().map(|p| p.name.as_str()).collect();
        return Err(format!("there is no kernel `{unknown}`; there are {}", known.join(", ")).into());
    }
    programs.retain(|p| names.is_empty() || names.contains(&p.name));
    Ok(programs)
}

/// Programs, and behind each what calls run whose tensors store what parameters may store instead: integers, floats or both.
pub(crate) fn with_others(programs: &[Program]) -> Result<Vec<Program>, TypeError> {
    let kinds: [fn(&Param) -> bool; 3] = [|p| !p.elem.is_float(), |p| p.elem.is_float(), |_| true];
    let mut all: Vec<Program> = vec![];
    for program in programs {
        all.push(program.clone());
        for is_chosen in kinds {
            let chosen = (0..program.params.len()).filter(|k| is_chosen(&program.params[*k]));
            let other = chosen.into_iter().try_fold(program.clone(), |program, k| choose(&program, k))?;
            if !all.contains(&other) {
                all.push(other);
            }
        }
    }
    Ok(all)
}

/// The kernels of programs and of their gradients: for every element type, instruction set, and schedule that calls of
/// any shape may be given.
pub(crate) fn all_variants(programs: &[Program], elems: &[Elem], isas: &[Isa]) -> Result<Vec<Variant>, Box<dyn Error>> {
    variants_of(programs.iter().flat_map(|p| forms(p, elems, forms_in)), isas)
}

/// The kernels of calls and gradients that are divided along an axis over several ranks; the programs that cannot be divided, with
/// the reasons.
pub(crate) fn sharded_variants(
    programs: &[Program],
    axis: &str,
    elems: &[Elem],
    isas: &[Isa],
) -> Result<(Vec<Variant>, Vec<String>), Box<dyn Error>> {
    let (mut divided, mut refused) = (vec![], vec![]);
    for program in programs.iter().filter(|program| program.axis(axis).is_some()) {
        for whole in [Some(program.clone()), adjoint(program).ok()].into_iter().flatten() {
            match parts(&whole, axis) {
                Ok(parts) => divided.extend(parts),
                Err(reason) => refused.push(format!("`{}` is not divided: {reason}", whole.name)),
            }
        }
    }
    if divided.is_empty() && refused.is_empty() {
        return Err(format!("no kernel has the axis {axis}, along which calls would be divided").into());
    }
    let in_elems = |program: &Program| elems.iter().flat_map(|elem| forms_in(program, *elem)).collect::<Vec<_>>();
    Ok((variants_of(divided.iter().flat_map(in_elems), isas)?, refused))
}

/// The programs of shards and of folds when all outputs are wanted, and when those are that calls without optional parameters have.
fn parts(program: &Program, axis: &str) -> Result<Vec<Program>, ShardError> {
    let mut all: Vec<Program> = vec![];
    for wanted in [all_outputs(program), lean_outputs(program, &absent(program, |_| true))] {
        let whole = keep_outputs(program, &wanted);
        let in_segments = shard_in_segments(&whole, axis)?.map_or(vec![], |sharded| sharded.phases);
        for phase in shard(&whole, axis)?.phases.into_iter().chain(in_segments) {
            all.extend(phase.folds.into_iter().map(|fold| fold.program));
            all.extend(phase.spreads.into_iter().chain(phase.program).chain(phase.joins));
        }
    }
    Ok(all)
}

/// The kernels of programs: for every instruction set, and schedule that calls of any shape may be given.
fn variants_of(programs: impl Iterator<Item = Program>, isas: &[Isa]) -> Result<Vec<Variant>, Box<dyn Error>> {
    let mut all: Vec<(String, Variant)> = vec![];
    for program in programs {
        let cuts = cuts(&program).map_err(|e| format!("`{}`: {e}", program.name))?;
        let stages: Vec<Stage> = cuts.all().flat_map(|cut| cut.stages).collect();
        for (stage, isa) in stages.iter().flat_map(|stage| isas.iter().map(move |isa| (stage, *isa))) {
            // No call takes a schedule that no device has the shared memory for.
            let fits =
                |(stage, schedule): &(Stage, Schedule)| schedule.shared_bytes(stage, isa) <= Target::H200.shared_bytes;
            let of_stage = variants(stage, isa).into_iter().filter(fits);
            let of_stage = of_stage.map(|(stage, schedule)| Variant { stage, schedule, isa: schedule.isa(isa) });
            all.extend(of_stage.map(|v| (v.key().to_string(), v)));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.dedup_by(|a, b| a.0 == b.0);
    Ok(all.into_iter().map(|(_, variant)| variant).collect())
}

/// The kernels of ordered calls of programs and of their one-step forms, and of their gradients.
pub(crate) fn ordered_variants(programs: &[Program], elems: &[Elem]) -> Result<Vec<Variant>, Box<dyn Error>> {
    let steps = programs.iter().filter_map(|program| Some(step(program).ok()?.program));
    let all: Vec<Program> = programs.iter().cloned().chain(steps).collect();
    let mut variants = vec![];
    for program in all.iter().flat_map(|p| forms(p, elems, ordered_forms_in)) {
        let cut = cut_ordered(&program).map_err(|e| format!("`{}`: {e}", program.name))?;
        let of_stages = cut.stages.iter().flat_map(plan::ordered_variants);
        variants.extend(of_stages.map(|(stage, schedule)| Variant { stage, schedule, isa: schedule.isa(Isa::Sm80) }));
    }
    Ok(variants)
}

/// The programs that calls of a kernel run: forward and backward, in each element type, with all optional parameters
/// and with none; and of two cotangents, as of outputs and a final state, with the first one only.
fn forms(program: &Program, elems: &[Elem], forms_in: fn(&Program, Elem) -> Vec<Program>) -> Vec<Program> {
    let both = std::iter::once(program.clone()).chain(adjoint(program).ok());
    let elems = if program.is_generic() { elems } else { &[Elem::F32] };
    both.flat_map(|p| elems.iter().flat_map(|elem| forms_in(&p, *elem)).collect::<Vec<_>>()).collect()
}

fn is_cotangent(param: &Param) -> bool {
    param.name.ends_with(".bar")
}

fn forms_in(program: &Program, elem: Elem) -> Vec<Program> {
    let mut forms = vec![full(program, elem), lean(program, elem, |_| true)];
    if program.params.iter().filter(|param| is_cotangent(param)).count() == 2 {
        forms.push(lean(program, elem, is_cotangent));
    }
    forms
}

/// The forms of a program that ordered calls take: those of [`forms_in`], and one with all cotangents but without the other
/// optional parameters. Any other call may run as one that leaves nothing out when its own kernels are missing; an ordered call
/// would then walk more values one element after the other.
fn ordered_forms_in(program: &Program, elem: Elem) -> Vec<Program> {
    let mut forms = forms_in(program, elem);
    forms.push(lean(program, elem, |param| !is_cotangent(param)));
    forms
}

/// The programs of calls that give every parameter, and of the cotangents the first one, or all where there is one of a
/// final state.
pub(crate) fn given_cotangents(program: &Program, elem: Elem) -> Vec<Program> {
    let all = has_final_cotangent(program).then(|| full(program, elem));
    [lean(program, elem, is_cotangent)].into_iter().chain(all).collect()
}

/// Whether a gradient has cotangents of what stands at every index of a scanned axis and of what does not, as a final state.
fn has_final_cotangent(program: &Program) -> bool {
    let scanned = program.nodes.iter().filter_map(|node| match node.op {
        Op::Scan { axis, .. } => Some(axis),
        Op::MatrixScan(ref scan) => Some(scan.axis),
        _ => None,
    });
    let cotangents: Vec<&Param> = program.params.iter().filter(|param| is_cotangent(param)).collect();
    scanned.into_iter().any(|axis| {
        let has = |param: &&&Param| param.axes.contains(&axis);
        (1..cotangents.len()).contains(&cotangents.iter().filter(has).count())
    })
}

/// The program of calls that give every parameter and want every output.
fn full(program: &Program, elem: Elem) -> Program {
    for_call(program, elem, &all_outputs(program), &[])
}

fn all_outputs(program: &Program) -> Vec<&str> {
    program.outputs.iter().map(|output| output.name.as_str()).collect()
}

/// The program of calls without those optional parameters, and so without their gradients. Of the cotangents the first
/// one is given, or there would be nothing to compute.
fn lean(program: &Program, elem: Elem, leaves_out: impl Fn(&Param) -> bool) -> Program {
    let absent = absent(program, leaves_out);
    for_call(program, elem, &lean_outputs(program, &absent), &absent)
}

/// The optional parameters that are left out, without the first cotangent.
fn absent(program: &Program, leaves_out: impl Fn(&Param) -> bool) -> Vec<&str> {
    let first = program.params.iter().position(is_cotangent);
    let optional = program.params.iter().enumerate().filter(|(k, p)| p.default.is_some() && Some(*k) != first);
    optional.filter(|(_, p)| leaves_out(p)).map(|(_, p)| p.name.as_str()).collect()
}

/// The outputs without the gradients of absent parameters.
fn lean_outputs<'p>(program: &'p Program, absent: &[&str]) -> Vec<&'p str> {
    let is_wanted = |name: &&str| name.strip_suffix(".bar").is_none_or(|param| !absent.contains(&param));
    all_outputs(program).into_iter().filter(is_wanted).collect()
}

/// Compiles kernels behind a progress bar.
pub(crate) fn compile(variants: &[Variant], checks: Checks<'_>, command: &str) -> Result<Batch, Box<dyn Error>> {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} kernels, {eta} left")?;
    let bar = ProgressBar::new(variants.len() as u64).with_style(style);
    let batch = build(variants, checks, command, || bar.inc(1));
    bar.finish_and_clear();
    Ok(batch)
}

/// All kernels; failures become one error.
pub(crate) fn all_of(Batch { built, failed }: Batch) -> Result<Vec<Built>, Box<dyn Error>> {
    if failed.is_empty() {
        return Ok(built);
    }
    let list: String = failed.iter().map(|e| format!("\n{e}")).collect();
    Err(format!("{} of {} kernels cannot be made:{list}", failed.len(), failed.len() + built.len()).into())
}

/// An instruction set by its name.
pub(crate) fn parse_isa(name: &str) -> Result<Isa, String> {
    let known = Isa::ALL.map(Isa::name).join(", ");
    Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| format!("must be one of {known}"))
}

/// An element type that a call can have.
pub(crate) fn parse_elem(name: &str) -> Result<Elem, String> {
    let elem = Elem::from_name(name).filter(|e| e.is_float() && e.bytes().is_some());
    elem.ok_or_else(|| "must be one of f32, f64, bf16, f16".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tensors_may_store_instead_is_baked_too() {
        let text = "fn f(x: [B, T], g: call | wide[B, T], at: i32 | i64[S]) -> (y: [B, T]) {
            y = scan(T, segmented(LogDecay)(g, x), offsets = at).x;
        }";
        let programs = oplus_front::programs(text.parse().expect("tokens")).expect("a program");
        let all = with_others(&programs).expect("forms");
        let stored: Vec<Vec<Elem>> = all.iter().map(|p| p.params[1..].iter().map(|p| p.elem).collect()).collect();
        let (call, wide) = (Elem::Call, Elem::Wide);
        assert_eq!(stored, [[call, Elem::I32], [call, Elem::I64], [wide, Elem::I32], [wide, Elem::I64]]);
        assert_eq!(with_others(&oplus_front::standard_programs()[..1]).expect("forms").len(), 1);
    }

    /// The models call what they end with `…_last`, and nothing else that.
    #[test]
    fn final_states_are_found_by_their_axes() {
        let mut found = 0;
        for model in oplus_front::model_programs() {
            let Ok(gradient) = adjoint(&model) else { continue };
            let named = model.outputs.iter().any(|output| output.name.contains("_last") && output.elem.is_float());
            assert_eq!(has_final_cotangent(&gradient), named, "{gradient}");
            found += usize::from(named);
        }
        assert!(found > 10, "{found}");
    }
}
