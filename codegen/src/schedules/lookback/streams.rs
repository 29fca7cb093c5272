//! The parameters that run along the scan axis.

use crate::block::reads::{Offsets, near};
use crate::schedules::LookBack;
use crate::stage::{Scan, Stage};
use oplus_dsl::Elem;

/// Displacements up to this many elements are read from the ring; farther ones from global memory.
const REACH: i64 = 8;

/// The parameters that run along the scan axis, and the displacements at which points read them.
pub(super) struct Streams {
    /// The streams.
    pub(super) list: Vec<Stream>,
}

/// A parameter that runs along the scan axis.
pub(super) struct Stream {
    pub(super) param: u32,
    pub(super) name: String,
    pub(super) elem: Elem,
    /// Elements that a ring stage holds before and after the tile: whole 16 bytes.
    pub(super) before: u32,
    pub(super) after: u32,
    /// The displacements, and those that the scan's elements use (`None` if they do not read it).
    pub(super) offsets: Offsets,
    pub(super) element_offsets: Option<Offsets>,
}

impl Streams {
    pub(super) fn new(stage: &Stage, scan: &Scan, schedule: &LookBack) -> Streams {
        let by_elements = near(stage, scan.axis, scan.elements.iter().copied(), REACH);
        let outputs = stage.program.outputs.iter().map(|o| o.value);
        let by_all = near(stage, scan.axis, outputs.chain(scan.elements.iter().copied()), REACH);
        let list = by_all.iter().map(|(param, offsets)| {
            let p = &stage.program.params[*param as usize];
            let unit = 16 / p.elem.bytes().unwrap_or(16) as i64;
            let halo = |n: i64| if n > 0 && schedule.vector > 1 { (n + unit - 1) / unit * unit } else { 0 };
            Stream {
                param: *param,
                name: p.name.clone(),
                elem: p.elem,
                before: halo(-offsets.least) as u32,
                after: halo(offsets.greatest) as u32,
                offsets: *offsets,
                element_offsets: by_elements.get(param).copied(),
            }
        });
        Streams { list: list.collect() }
    }
}

impl Stream {
    /// Elements per access.
    pub(super) fn access(&self, schedule: &LookBack) -> u32 {
        schedule.vector.min(self.unit())
    }

    /// Elements in 16 bytes.
    pub(super) fn unit(&self) -> u32 {
        16 / self.elem.bytes().unwrap_or(16) as u32
    }
}
