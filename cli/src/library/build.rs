//! Compiling many kernels at once.

use super::manifest::{Cubin, MACHINE};
use super::{Entry, Manifest, shards};
use oplus_codegen::block::steps::can_lose_states;
use oplus_codegen::key::{Key, tile_hash};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::{LowerError, lower};
use oplus_codegen::stage::Stage;
use oplus_codegen::target::Isa;
use oplus_llvm::CompileError;
use oplus_llvm::ptxas::{Ptxas, PtxasError};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A kernel to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    /// The stage that it computes.
    pub(crate) stage: Stage,
    /// How.
    pub(crate) schedule: Schedule,
    /// For which instruction set.
    pub(crate) isa: Isa,
}

/// A kernel that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{program} under {schedule} on {}: {reason}", .isa.name())]
pub(crate) struct BuildError {
    /// The stage's program.
    pub(crate) program: String,
    /// The schedule.
    pub(crate) schedule: Box<Schedule>,
    /// The instruction set.
    pub(crate) isa: Isa,
    /// The reason.
    pub(crate) reason: BuildReason,
}

/// The reasons why a kernel cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildReason {
    /// The schedule does not fit the stage.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// LLVM has no code for it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// `ptxas` refuses it.
    #[error(transparent)]
    Ptxas(#[from] PtxasError),
}

/// A kernel that was made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Built {
    /// Its entry in a manifest.
    pub(crate) entry: Entry,
    /// The PTX.
    pub(crate) text: String,
    /// The machine code that the entry names.
    pub(crate) cubin: Option<Vec<u8>>,
}

/// Kernels that were made, and those that could not be, each in order.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The kernels that were made.
    pub(crate) built: Vec<Built>,
    /// Why others were not.
    pub(crate) failed: Vec<BuildError>,
}

impl Batch {
    /// Takes the failures of kernels that spill where another kernel of their program was made: calls take the fastest of those
    /// that there are.
    pub(crate) fn take_spilling(&mut self) -> Vec<BuildError> {
        let is_made = |program: &str| self.built.iter().any(|kernel| kernel.entry.program == program);
        let (spilling, failed) = self.failed.drain(..).partition(|e: &BuildError| e.spills() && is_made(&e.program));
        self.failed = failed;
        spilling
    }
}

impl BuildError {
    /// Whether the kernel has too few registers.
    pub(crate) fn spills(&self) -> bool {
        matches!(self.reason, BuildReason::Ptxas(PtxasError::Spills(_)))
    }
}

/// A line for every program of kernels that are left out: how many, and of which kinds of schedule.
pub(crate) fn counts(left_out: &[BuildError]) -> Vec<String> {
    let mut programs: BTreeMap<&str, (usize, BTreeSet<String>)> = BTreeMap::new();
    for error in left_out {
        let (count, kinds) = programs.entry(&error.program).or_default();
        let schedule = error.schedule.to_string();
        let kind = schedule.split('(').next().unwrap_or_default();
        *count += 1;
        kinds.insert(format!("{kind} on {}", error.isa.name()));
    }
    let line = |(program, (count, kinds)): (&str, (usize, BTreeSet<String>))| {
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        format!("left out of {program}: {count} that spill ({kinds})")
    };
    programs.into_iter().map(line).collect()
}

/// The bytes that kernels may spill whose scans can lose a state, stores and loads together: numbers that only the branch of single
/// steps reads, which is not taken while states are finite.
const STEPS_SPILL: u32 = 128;

/// The checks that kernels have to pass.
#[derive(Clone, Copy, Default)]
pub(crate) struct Checks<'a> {
    /// The assembler, on every device that the kernel is for: no slow code, and no spills but a few bytes for the branch of single steps.
    pub(crate) ptxas: Option<&'a Ptxas>,
    /// Kernels that have passed it before.
    pub(crate) older: Option<Older<'a>>,
    /// Whether these pass it again although it is the assembler that they have passed.
    pub(crate) again: bool,
}

/// A folder of kernels that were made before.
#[derive(Clone, Copy)]
pub(crate) struct Older<'a> {
    /// Where it is.
    pub(crate) folder: &'a Path,
    /// Its contents.
    pub(crate) manifest: &'a Manifest,
}

/// Compiles kernels in parallel. `command` is what made them, `done` is called after each.
pub(crate) fn build(variants: &[Variant], checks: Checks<'_>, command: &str, done: impl Fn() + Sync) -> Batch {
    let build = |v: &Variant| {
        let result = v.build(checks, command);
        done();
        result
    };
    // One at a time: kernels next to each other take the same time.
    let results: Vec<_> = variants.par_iter().with_max_len(1).map(build).collect();
    let mut batch = Batch::default();
    for result in results {
        match result {
            Ok(kernel) => batch.built.push(kernel),
            Err(error) => batch.failed.push(error),
        }
    }
    batch
}

impl Variant {
    /// The key that the kernel is found by.
    pub(crate) fn key(&self) -> Key {
        Key::of(&self.stage, &*self.schedule, self.isa)
    }

    fn build(&self, checks: Checks<'_>, command: &str) -> Result<Built, BuildError> {
        self.try_build(checks, command).map_err(|reason| BuildError {
            program: self.stage.program.name.clone(),
            schedule: Box::new(self.schedule),
            isa: self.isa,
            reason,
        })
    }

    fn try_build(&self, checks: Checks<'_>, command: &str) -> Result<Built, BuildReason> {
        let kernel = lower(&self.stage, &self.schedule, self.isa)?;
        let code = oplus_llvm::compile(&kernel, self.isa)?;
        let text = format!("// {} by `{command}`: {}\n{code}", kernel.name, self.schedule);
        let mut entry = Entry {
            key: self.key().to_string(),
            file: format!("ptx/{}.{}.ptx", kernel.name, self.isa.name()),
            range: None,
            symbol: kernel.name.clone(),
            isa: self.isa.name().into(),
            program: self.stage.program.name.clone(),
            elements: self.elements(),
            schedule: self.schedule.to_string(),
            threads: kernel.threads,
            shared_bytes: kernel.shared_layout().1,
            registers: None,
            blake3: blake3::hash(text.as_bytes()).to_hex().to_string(),
            tile: Some(tile_hash(&kernel)),
            cubin: None,
            receipt: None,
        };
        let spills = if can_lose_states(&self.stage) { STEPS_SPILL } else { 0 };
        let cubin = checks.assemble(&mut entry, &code, self.isa, spills)?;
        Ok(Built { entry, text, cubin })
    }

    fn elements(&self) -> Vec<String> {
        let program = &self.stage.program;
        let params = program.params.iter().map(|p| format!("{}: {}", p.name, p.elem));
        params.chain(program.outputs.iter().map(|o| format!("{}: {}", o.name, o.elem))).collect()
    }
}

impl Checks<'_> {
    /// Assembles a kernel that has not passed before, or must again; completes its entry, gives the machine code.
    fn assemble(&self, entry: &mut Entry, code: &str, isa: Isa, spills: u32) -> Result<Option<Vec<u8>>, PtxasError> {
        let known = self.older.and_then(|older| older.manifest.same_text(entry));
        let kept = known.and_then(|known| self.older?.cubin(known));
        entry.registers = known.and_then(|known| known.registers);
        entry.cubin = known.filter(|_| kept.is_some()).and_then(|known| known.cubin.clone());
        let Some(ptxas) = self.ptxas else { return Ok(kept) };
        let version = ptxas.version()?;
        let passed = entry.cubin.as_ref().is_some_and(|cubin| cubin.ptxas == version) && entry.registers.is_some();
        if passed && !self.again {
            return Ok(kept);
        }
        let mut assembled = vec![];
        for device in isa.devices(entry.shared_bytes) {
            assembled.push((device, ptxas.assemble_within(code, device, spills)?));
        }
        // Of a kernel for several devices, those of the first.
        entry.registers = assembled.first().map(|(_, first)| first.facts.registers);
        if entry.cubin.as_ref().is_some_and(|cubin| cubin.ptxas != version) {
            // Another version makes other code, which no GPU has checked.
            return Ok(kept);
        }
        let machine = assembled.into_iter().find(|(device, _)| *device == MACHINE).map(|(_, own)| own.cubin);
        entry.cubin = machine.as_ref().map(|code| Cubin {
            file: String::new(),
            range: None,
            ptxas: version.to_owned(),
            blake3: blake3::hash(code).to_hex().to_string(),
        });
        Ok(machine)
    }
}

impl Older<'_> {
    /// The machine code of an entry, if its file is what the manifest says.
    fn cubin(&self, entry: &Entry) -> Option<Vec<u8>> {
        let cubin = entry.cubin.as_ref()?;
        let [start, len] = cubin.range?;
        let shard = shards::unpack(&std::fs::read(self.folder.join(&cubin.file)).ok()?).ok()?;
        let code = shard.get(start..start.checked_add(len)?)?.to_vec();
        (blake3::hash(&code).to_hex().as_str() == cubin.blake3).then_some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus_codegen::schedules::{Fold, Loader, LookBack};

    fn cumsum() -> Stage {
        let text = "program cumsum {
    axes B, L;
    param x: bf16[B, L];
    operator Sum(s: f32) {
        identity (0.0);
        %0: f32 = input l.s;
        %1: f32 = input r.s;
        %2: f32 = %0 + %1;
        combine (%2);
    }
    %0: f32[B, L] = param x;
    %1: tuple[B, L] = scan(L, Sum, (%0));
    %2: f32[B, L] = %1.s;
    output y: f32[B, L] = %2;
}";
        let program = oplus_dsl::parse::parse(text).unwrap();
        oplus_codegen::stage::cut(&program).unwrap().stages.remove(0)
    }

    fn variant(isa: Isa, loader: Loader) -> Variant {
        let look_back = LookBack {
            scan_warps: 2,
            reduce_warps: 1,
            vector: 4,
            vectors: 2,
            stages: 2,
            window: 1,
            fold: Fold::Strict,
            loader,
        };
        Variant { stage: cumsum(), schedule: Schedule::LookBack(look_back), isa }
    }

    #[test]
    fn entries_say_what_a_kernel_is() {
        let variants = [variant(Isa::Sm90a, Loader::Bulk), variant(Isa::Sm80, Loader::Registers)];
        let kernels = build(&variants, Checks::default(), "oplus generate", || ()).built;
        assert_eq!(kernels.len(), variants.len());
        for (variant, Built { entry, text, cubin }) in variants.iter().zip(&kernels) {
            assert_eq!((&entry.cubin, cubin), (&None, &None));
            assert_eq!(entry.key, variant.key().to_string());
            assert_eq!((entry.isa.as_str(), entry.program.as_str()), (variant.isa.name(), "cumsum"));
            assert_eq!(entry.elements, ["x: bf16", "y: f32"]);
            assert_eq!(entry.schedule, variant.schedule.to_string());
            assert_eq!(entry.blake3, blake3::hash(text.as_bytes()).to_hex().as_str());
            let tile = tile_hash(&lower(&variant.stage, &variant.schedule, variant.isa).unwrap());
            assert_eq!(entry.tile.as_ref(), Some(&tile));
            assert!(text.starts_with(&format!("// {} by `oplus generate`: lookback(", entry.symbol)), "{text}");
            assert!(text.contains(&format!(".entry {}(", entry.symbol)), "{text}");
        }
    }

    #[test]
    fn every_failure_is_reported() {
        let bad = variant(Isa::Sm80, Loader::Bulk);
        let variants = [bad.clone(), variant(Isa::Sm80, Loader::Registers), bad];
        let Batch { built, failed: errors } = build(&variants, Checks::default(), "", || ());
        assert_eq!((built.len(), errors.len()), (1, 2));
        let text = errors[0].to_string();
        assert!(text.starts_with("cumsum under lookback(") && text.contains("on sm_80:"), "{text}");
    }

    /// A kernel of this program that spills.
    fn spilling(program: &str) -> BuildError {
        let facts = oplus_llvm::ptxas::Facts { registers: 255, shared: 0, stack: 0, spills: 8, code: 0 };
        let Variant { schedule, isa, .. } = variant(Isa::Sm80, Loader::Registers);
        let reason = BuildReason::Ptxas(PtxasError::Spills(facts));
        BuildError { program: program.into(), schedule: Box::new(schedule), isa, reason }
    }

    #[test]
    fn what_spills_is_left_out_where_other_kernels_are_made() {
        let variants = [variant(Isa::Sm80, Loader::Bulk), variant(Isa::Sm80, Loader::Registers)];
        let mut batch = build(&variants, Checks::default(), "", || ());
        batch.failed.extend([spilling("cumsum"), spilling("affine")]);
        let left_out = batch.take_spilling();
        assert_eq!(left_out.iter().map(|e| e.program.as_str()).collect::<Vec<_>>(), ["cumsum"]);
        let failed: Vec<_> = batch.failed.iter().map(|e| (e.program.as_str(), e.spills())).collect();
        assert_eq!(failed, [("cumsum", false), ("affine", true)]);
    }

    #[test]
    fn what_is_left_out_is_counted_by_program() {
        let left_out = ["b", "a", "b"].map(spilling);
        let line = |own: &str| format!("left out of {own} that spill (lookback on sm_80)");
        assert_eq!(counts(&left_out), [line("a: 1"), line("b: 2")]);
    }
}
