//! A launch to try pictures and pages on.

use super::{Candidate, Carry, Cut, Explained, Side};

/// A scan of two rows, of two tiles each, whose block keeps the carry.
pub fn launch() -> Explained {
    let side = |name: &str, size, tile| Side { name: name.into(), size, tile };
    let (along, across) = (side("L", 8192, 4096), side("B", 2, 1));
    Explained {
        name: "cumsum".into(),
        task: "scan along L by add".into(),
        reads: vec!["x: f32[B, L]".into()],
        writes: vec!["y: f32[B, L]".into()],
        equations: String::new(),
        division: "2 rows of 8192".into(),
        grid: "2 blocks of 128 threads".into(),
        symbol: "cumsum".into(),
        candidates: vec![Candidate { schedule: "rows".into(), micros: 2.5, why: String::new() }],
        refused: vec![],
        bytes: 131_072,
        facts: vec![],
        cut: Cut { along, across, blocks: 2, carry: Carry::Kept, reverse: false, tile: None },
    }
}
