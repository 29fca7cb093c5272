//! Keys: what a compiled kernel is found by.

use std::fmt;

use crate::schedules::strategy::Strategy;
use crate::stage::Stage;
use crate::target::Isa;
use crate::tile::Kernel;

/// The version of the compiler in every key. To be raised by every change that gives a kernel other code for the same
/// stage and schedule: `oplus generate` refuses to write another text under a key that there is.
pub const COMPILER_VERSION: u32 = 11;

/// The hash of everything that a kernel's code depends on: the stage's program with its element types, the schedule,
/// the instruction set it is compiled for ([`Strategy::isa`]) and the compiler's version. The same for every size and
/// stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

/// The part that the keys of all kernels of a stage have in common.
#[derive(Clone, Debug)]
pub struct StageKey(blake3::Hasher);

impl StageKey {
    /// The key of a stage.
    pub fn of(stage: &Stage) -> StageKey {
        let parts = stage.partial_axis.map(|axis| format!("parts {}", axis.0)).unwrap_or_default();
        let sequences = stage.sequences().map(|sequences| sequences.to_string()).unwrap_or_default();
        StageKey::of_text(&format!("{}{:?}{parts}{sequences}", stage.program, stage.views))
    }

    fn of_text(program: &str) -> StageKey {
        let mut hasher = blake3::Hasher::new();
        enter(&mut hasher, program);
        StageKey(hasher)
    }

    /// The key of the stage's kernel under a schedule.
    pub fn of_kernel(&self, schedule: &dyn Strategy, isa: Isa) -> Key {
        self.of_texts(&schedule.to_string(), schedule.isa(isa).name(), COMPILER_VERSION)
    }

    fn of_texts(&self, schedule: &str, isa: &str, version: u32) -> Key {
        let mut hasher = self.0.clone();
        [schedule, isa, &version.to_string()].into_iter().for_each(|part| enter(&mut hasher, part));
        Key(*hasher.finalize().as_bytes())
    }
}

/// Adds a part, preceded by its length, so that no two lists of parts give the same bytes.
fn enter(hasher: &mut blake3::Hasher, part: &str) {
    hasher.update(&(part.len() as u64).to_le_bytes());
    hasher.update(part.as_bytes());
}

impl Key {
    /// The key of a stage's kernel.
    pub fn of(stage: &Stage, schedule: &dyn Strategy, isa: Isa) -> Key {
        StageKey::of(stage).of_kernel(schedule, isa)
    }

    /// The kernel's symbol: the program's name, the schedule's name and the first 12 digits of the key.
    pub fn symbol(&self, stage: &Stage, schedule: &dyn Strategy) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = stage.program.name.chars().map(word).collect();
        format!("{name}_{}_{}", schedule.name(), &self.to_string()[..12])
    }
}

/// The hash of a kernel's tile IR, in hexadecimal: of its arguments, its shared memory and its statements. The key of a launch
/// names the tile IR that some version of the compiler made of it; this is what it is.
pub fn tile_hash(kernel: &Kernel) -> String {
    blake3::hash(format!("{}{:?}", kernel.terse(), kernel.regs).as_bytes()).to_hex().to_string()
}

/// The hash of a PTX text and of the hash of the tile IR that it was compiled from, in hexadecimal.
pub fn seal(tile: &str, text: &str) -> String {
    blake3::hash(format!("{tile}\n{text}").as_bytes()).to_hex().to_string()
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_parts(program: &str, schedule: &str, isa: &str, version: u32) -> Key {
        StageKey::of_text(program).of_texts(schedule, isa, version)
    }

    #[test]
    fn every_ingredient_changes_the_key() {
        let base = of_parts("program", "rows(a=1)", "sm_80", 1);
        let others = [
            of_parts("program2", "rows(a=1)", "sm_80", 1),
            of_parts("program", "rows(a=2)", "sm_80", 1),
            of_parts("program", "rows(a=1)", "sm_90a", 1),
            of_parts("program", "rows(a=1)", "sm_80", 2),
            of_parts("programrows(a=1)", "", "sm_80", 1),
        ];
        assert!(others.iter().all(|key| *key != base));
        assert_eq!(base, of_parts("program", "rows(a=1)", "sm_80", 1));
    }

    #[test]
    fn a_key_prints_as_64_hexadecimal_digits() {
        let text = of_parts("", "", "", 0).to_string();
        assert_eq!(text.len(), 64);
        assert!(text.chars().all(|c| c.is_ascii_hexdigit()));
    }
}
