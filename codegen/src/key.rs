//! Keys: what a compiled kernel is found by.

use std::fmt;

use crate::schedules::Strategy;
use crate::stage::Stage;
use crate::target::Isa;
use crate::tile::Kernel;

/// The version of the compiler in every key. To be raised by every change that gives a kernel other code for the same
/// stage and schedule: `oplus generate` refuses to write another text under a key that there is.
pub const COMPILER_VERSION: u32 = 6;

/// The hash of everything that a kernel's code depends on: the stage's program with its element types, the schedule,
/// the instruction set it is compiled for ([`Strategy::isa`]) and the compiler's version. The same for every size and
/// stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of a stage's kernel.
    pub fn of(stage: &Stage, schedule: &dyn Strategy, isa: Isa) -> Key {
        let parts = stage.part_axis.map(|axis| format!("parts {}", axis.0)).unwrap_or_default();
        let program = format!("{}{:?}{parts}", stage.program, stage.views);
        Key::of_parts(&program, &schedule.to_string(), schedule.isa(isa).name(), COMPILER_VERSION)
    }

    /// Every part is preceded by its length, so that no two lists of parts give the same bytes.
    fn of_parts(program: &str, schedule: &str, isa: &str, version: u32) -> Key {
        let mut hasher = blake3::Hasher::new();
        for part in [program, schedule, isa, &version.to_string()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Key(*hasher.finalize().as_bytes())
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

    #[test]
    fn every_ingredient_changes_the_key() {
        let base = Key::of_parts("program", "rows(a=1)", "sm_80", 1);
        let others = [
            Key::of_parts("program2", "rows(a=1)", "sm_80", 1),
            Key::of_parts("program", "rows(a=2)", "sm_80", 1),
            Key::of_parts("program", "rows(a=1)", "sm_90a", 1),
            Key::of_parts("program", "rows(a=1)", "sm_80", 2),
            Key::of_parts("programrows(a=1)", "", "sm_80", 1),
        ];
        assert!(others.iter().all(|key| *key != base));
        assert_eq!(base, Key::of_parts("program", "rows(a=1)", "sm_80", 1));
    }

    #[test]
    fn a_key_prints_as_64_hexadecimal_digits() {
        let text = Key::of_parts("", "", "", 0).to_string();
        assert_eq!(text.len(), 64);
        assert!(text.chars().all(|c| c.is_ascii_hexdigit()));
    }
}
