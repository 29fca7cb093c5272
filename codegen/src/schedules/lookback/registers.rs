//! An estimate of the registers that a look-back kernel takes, by which a tile is chosen that fits.
//!
//! A block's warps have different roles in one kernel, so a thread has as many registers as the role that takes most. Three
//! roles grow with the operator or with the tensors:
//!
//! * the **look-ahead** warp holds `window` messages, each word with its tag, beside the carry and what is folded onto it;
//! * the **scanners** (and the reducers, which hold less) have a span of elements, the outputs of a stretch and the prefixes of
//!   all stretches;
//! * the **producer** has the places of every tensor that it copies, those of neighbours as well, and where a row ends the
//!   elements that the copy engine does not bring.
//!
//! Each role's estimate is linear in these numbers, and was fitted to the reports of `ptxas` for the operators in `cli/survey`;
//! `oplus survey` prints both. It is an upper bound of nearly all reports; some kernels that exceed it fit nevertheless. States of many
//! words take more registers while they are combined, in the look-ahead warp and in the scanners.

use super::{Loader, LookBack};
use crate::block::carry::words;
use crate::block::pressure::{temporaries, words_per_element};
use crate::block::reads::{Offsets, near};
use crate::stage::Stage;
use crate::target::{REGISTERS, WARP};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op, Unary};

/// Registers of the look-ahead warp beside messages and states.
const AHEAD: u32 = 27;
/// Registers of a scanner beside elements, outputs and prefixes.
const SCANNER: u32 = 16;
/// Registers of the producer beside those of tensors.
const PRODUCER: u32 = 18;
/// Half registers of the producer for a tensor: its places in the ring and in global memory.
const HALVES_OF_TENSOR: u32 = 15;
/// Half registers of the producer for a halo.
const HALVES_OF_HALO: u32 = 9;
/// Registers of an access of a single element: its address is its own. So is that of every output.
const SINGLE: u32 = 3;
/// States of more words than this take registers while they are combined: so many for each word, and one for every two products.
const LARGE: u32 = 6;
const COMBINING: u32 = 5;
/// Registers of divisions, where a thread has at least so many elements.
const DIVISION: u32 = 24;
const MANY: u32 = 32;
/// Displacements that a tile holds, as in the lowering.
const REACH: i64 = 8;
/// The most registers of a thread for which estimates are trusted; a thread may have 255.
const MOST: u32 = 250;

/// The facts of a stage that its registers depend on.
#[derive(Default)]
pub(super) struct Pressure {
    /// Words of a state, and those of whole numbers of 64 bits, whose products take as many again.
    state: u32,
    long: u32,
    /// Words of an element: its parameters, or its fields if those are more.
    element: u32,
    /// Words of all outputs that there are at every time.
    outputs: u32,
    /// Intermediate values.
    temporaries: u32,
    /// Registers for combining large states.
    combining: u32,
    /// Whether anything is divided.
    divides: bool,
    /// Tensors that are read along the scan axis.
    tensors: u32,
    /// Their halos: neighbours that are read before a tile or behind it.
    halos: u32,
    /// Words of the halos.
    neighbours: u32,
    /// The most words of one tensor that are loaded singly where a row ends.
    end: u32,
}

impl Pressure {
    /// The facts of a stage with a scan.
    pub(super) fn of_stage(stage: &Stage) -> Pressure {
        Pressure::of(stage, words_per_element(stage), temporaries(stage))
    }

    /// The facts of a stage with a scan whose elements have so many words and intermediate values.
    fn of(stage: &Stage, element: u32, temporaries: u32) -> Pressure {
        let running = (0..).zip(&stage.program.outputs).filter(|(k, _)| !stage.is_final(*k));
        let outputs: Vec<Ty> = running.map(|(_, output)| output.elem.value()).collect();
        let mut pressure = Pressure { element, outputs: words(&outputs), temporaries, ..Pressure::default() };
        let Some(scan) = stage.scan() else { return pressure };
        let fields: Vec<Ty> = stage.program.operator(scan.operator).fields.iter().map(|field| field.ty).collect();
        pressure.state = words(&fields);
        let body = stage.program.operator(scan.operator).body.iter().map(|node| &node.op);
        pressure.divides = stage.program.nodes.iter().map(|node| &node.op).chain(body.clone()).any(divides);
        if pressure.state > LARGE {
            let products = body.filter(|op| matches!(op, Op::Binary(Binary::Mul, ..))).count() as u32;
            pressure.combining = COMBINING * pressure.state + products / 2;
        }
        pressure.long = fields.iter().filter(|ty| matches!(ty, Ty::I64 | Ty::U64)).map(|ty| words(&[*ty])).sum();
        let roots = stage.program.outputs.iter().map(|output| output.value).chain(scan.elements.iter().copied());
        for (param, Offsets { least: low, greatest: high }) in near(stage, scan.axis, roots, REACH) {
            let elem = stage.program.params[param as usize].elem;
            let (word, unit) = (words(&[elem.value()]), 16 / elem.bytes().unwrap_or(16) as u32);
            let after = if high > 0 { (high as u32).next_multiple_of(unit) } else { 0 };
            pressure.tensors += 1;
            pressure.halos += u32::from(low < 0) + u32::from(high > 0);
            pressure.neighbours += (high - low) as u32 * word;
            pressure.end = pressure.end.max((unit + after) * word);
        }
        pressure
    }

    /// Whether the operator has few fields over few tensors: the schedules of such operators were chosen by measurements.
    pub(super) fn is_small(&self) -> bool {
        self.element <= 6 && (self.state <= 2 || self.state <= 4 && self.temporaries < 32)
    }

    /// Whether a thread divides many elements.
    pub(super) fn divides_many(&self, schedule: &LookBack) -> bool {
        self.divides && schedule.vector * schedule.vectors >= MANY
    }

    /// The registers of a thread under a schedule.
    pub(super) fn registers(&self, schedule: &LookBack) -> u32 {
        let divisions = if self.divides_many(schedule) { DIVISION } else { 0 };
        let combining = self.combining + divisions;
        (combining + self.look_ahead(schedule).max(self.scanner(schedule))).max(self.producer(schedule))
    }

    fn look_ahead(&self, schedule: &LookBack) -> u32 {
        AHEAD + self.state * (2 * schedule.window + 2) + self.long + self.temporaries / 2
    }

    fn scanner(&self, schedule: &LookBack) -> u32 {
        let LookBack { vector, vectors, .. } = *schedule;
        let elements = vector * vectors * self.element + vectors * self.neighbours;
        let singles = if vector == 1 { SINGLE * vectors + self.outputs } else { 0 };
        SCANNER + elements + vector * self.outputs + (1 + vectors) * self.state + self.temporaries + singles
    }

    fn producer(&self, schedule: &LookBack) -> u32 {
        match schedule.loader {
            Loader::Bulk => {
                PRODUCER + (HALVES_OF_TENSOR * self.tensors + HALVES_OF_HALO * self.halos) / 2 + 2 * self.end
            }
            Loader::Registers => 0,
        }
    }
}

fn divides(op: &Op) -> bool {
    matches!(op, Op::Binary(Binary::Div, ..) | Op::Unary(Unary::Recip, _))
}

/// The registers that a thread of a stage's kernel is estimated to take under a schedule by look-back.
pub fn registers(stage: &Stage, schedule: &LookBack) -> u32 {
    Pressure::of_stage(stage).registers(schedule)
}

/// The registers that a thread may have in a block of so many warps: warps are given theirs by fours, a thread by eights.
pub fn register_limit(warps: u32) -> u32 {
    ((REGISTERS / (warps.next_multiple_of(4) * WARP)) & !7).min(MOST)
}

/// Schedules that take ever fewer registers: first those of a shorter window and of spans of fewer stretches, then of fewer
/// warps, whose threads have more registers, and at last of narrower accesses.
pub(super) fn smaller(preferred: LookBack) -> Vec<LookBack> {
    const FEWER: [(u32, u32); 3] = [(8, 4), (4, 2), (4, 1)];
    let own = (preferred.scan_warps, preferred.reduce_warps);
    let fewer = FEWER.into_iter().filter(|(scan, reduce)| scan + reduce < own.0 + own.1);
    let warps: Vec<(u32, u32)> = [own].into_iter().chain(fewer).collect();
    let halves = |n: u32, least: u32| (0..).map(move |k| n >> k).take_while(move |n| *n >= least);
    let narrowest = preferred.vector.min(2);
    let mut all = vec![];
    for (least_window, least_vector) in [(2, preferred.vector), (1, preferred.vector), (1, narrowest)] {
        for (scan_warps, reduce_warps) in &warps {
            for vector in halves(preferred.vector, least_vector) {
                for window in (least_window.min(preferred.window)..=preferred.window).rev() {
                    let (scan_warps, reduce_warps) = (*scan_warps, *reduce_warps);
                    let of = |vectors| LookBack { scan_warps, reduce_warps, vector, vectors, window, ..preferred };
                    all.extend(halves(preferred.vectors, 1).map(of));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::lookback::Fold;

    const PREFERRED: LookBack = LookBack {
        scan_warps: 8,
        reduce_warps: 8,
        vector: 4,
        vectors: 4,
        stages: 2,
        window: 6,
        fold: Fold::Blocks,
        loader: Loader::Bulk,
    };

    #[test]
    fn threads_of_fewer_warps_have_more_registers() {
        assert_eq!([24, 19, 16, 12, 9, 8].map(register_limit), [80, 96, 128, 168, 168, 250]);
    }

    #[test]
    fn smaller_schedules_begin_with_the_preferred_one_and_end_with_the_smallest() {
        let all = smaller(PREFERRED);
        assert_eq!(all[0], PREFERRED);
        let smallest = LookBack { scan_warps: 4, reduce_warps: 1, vector: 2, vectors: 1, window: 1, ..PREFERRED };
        assert_eq!(all.last(), Some(&smallest));
        let narrow = |s: &LookBack| s.vector < PREFERRED.vector;
        let first = all.iter().position(narrow).expect("narrower accesses");
        assert!(all[..first].iter().any(|s| s.window == 1 && s.scan_warps == 4), "windows and warps come first");
    }

    #[test]
    fn each_role_takes_its_part() {
        let many = Pressure { state: 12, element: 12, ..Pressure::default() };
        let shorter = LookBack { window: 3, ..PREFERRED };
        assert!(many.look_ahead(&shorter) + 6 * many.state == many.look_ahead(&PREFERRED));
        assert!(many.scanner(&LookBack { vectors: 1, ..PREFERRED }) < many.scanner(&PREFERRED));
        let copies = Pressure { tensors: 20, halos: 16, end: 8, ..Pressure::default() };
        assert!(copies.producer(&PREFERRED) > register_limit(12));
        assert_eq!(copies.producer(&LookBack { loader: Loader::Registers, ..PREFERRED }), 0);
    }
}
