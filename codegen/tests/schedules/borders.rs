//! Whole = chunks threaded through the state, to the bit, where chunks begin at borders that a schedule's parameters give.

use oplus_codegen::schedules::{Fold, Loader, LookBack, Rows, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Isa;
use oplus_dsl::Ty;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::testing::{cut, operators};

use crate::device::{Placement, Setting, run};
use crate::oracle::{Case, given};
use crate::rows::along;

/// Tiles of 256 elements.
const ROWS: Rows = Rows { warps: 2, row_warps: 2, lanes: 32, rows: 1, vector: 4, vectors: 1 };

/// A thread per two columns, four rows of time in flight.
const WALK: &str = "columns(lane=1, form=walk, warps=2, reduce_warps=0, lanes=32, vector=2, steps=4, stages=0, group=0, \
                    window=0)";

/// Tiles of 256 elements, folded one after the other.
const LOOK_BACK: LookBack = LookBack {
    scan_warps: 2,
    reduce_warps: 1,
    vector: 4,
    vectors: 1,
    stages: 3,
    window: 2,
    fold: Fold::Strict,
    loader: Loader::Bulk,
};

/// A scan with states given and taken, cut along L.
struct Chunked {
    program: Program,
    reverse: bool,
    schedule: Schedule,
}

impl Chunked {
    fn run(&self, inputs: &[Array], sizes: &[usize]) -> Vec<Array> {
        let case = Case { program: &self.program, sizes, placement: Placement::Contiguous, order: Order::Random(3) };
        let setting = Setting { placement: case.placement, order: case.order, isa: Isa::Sm90a };
        run(&self.program, &case.work(self.schedule), inputs, sizes, setting)
    }

    /// The outputs of chunks between `ends`, each from the state that the one before left, are those of the whole.
    fn check(&self, others: usize, ends: &[usize]) {
        let axis = self.program.axis("L").expect("the scan's axis");
        let (time, along) = (axis.0 as usize, |axes: &[Axis]| axes.iter().position(|own| *own == axis));
        let sizes = |times: usize| -> Vec<usize> { (0..2).map(|k| if k == time { times } else { others }).collect() };
        let times = ends[ends.len() - 1];
        let inputs = given(&self.program, &sizes(times));
        let whole = self.run(&inputs, &sizes(times));
        let starts = [0].iter().chain(ends).copied();
        let mut chunks: Vec<(usize, usize)> = starts.zip(ends.iter().copied()).collect();
        if self.reverse {
            chunks.reverse();
        }
        let mut found: Vec<Array> = vec![];
        for (from, to) in chunks {
            let own = self.program.params.iter().zip(&inputs).map(|(param, input)| {
                let handed = param.name.strip_suffix("_init").and_then(|field| {
                    let last = self.program.outputs.iter().position(|y| y.name == format!("{field}_last"))?;
                    found.get(last).cloned()
                });
                handed.unwrap_or_else(|| cut(input, along(&param.axes), from..to))
            });
            let own: Vec<Array> = own.collect();
            found = self.run(&own, &sizes(to - from));
            for ((output, whole), found) in self.program.outputs.iter().zip(&whole).zip(&found) {
                if !output.name.ends_with("_last") {
                    let wanted = cut(whole, along(&output.axes), from..to);
                    assert!(bits(found) == bits(&wanted), "`{}` from {from}: {}", output.name, self.schedule);
                }
            }
        }
        for ((output, whole), found) in self.program.outputs.iter().zip(&whole).zip(&found) {
            if output.name.ends_with("_last") {
                assert!(bits(found) == bits(whole), "`{}`: {}", output.name, self.schedule);
            }
        }
    }
}

fn bits(array: &Array) -> Vec<u64> {
    array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect()
}

/// The affine and the log-decay operator in both directions, cut at `ends`.
fn check(axes: [&str; 2], others: usize, ends: &[usize], schedule: Schedule) {
    for operator in [operators::affine(Ty::F32), operators::log_decay(Ty::F32)] {
        for reverse in [false, true] {
            let program = along(&operator, reverse, None, &axes);
            Chunked { program, reverse, schedule }.check(others, ends);
        }
    }
}

#[test]
fn rows_at_tiles() {
    check(["B", "L"], 3, &[256, 768, 1024, 1060], Schedule::Rows(ROWS));
}

#[test]
fn walks_of_columns_anywhere() {
    check(["L", "B"], 70, &[1, 4, 9, 32, 37], WALK.parse().expect("a schedule"));
}

#[test]
fn strict_look_back_at_tiles() {
    check(["B", "L"], 2, &[256, 768, 1024, 1060], Schedule::LookBack(LOOK_BACK));
}
