//! Attention whose scores are more than one product, or whose rows and columns are computed, in kernels of pairs.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use crate::device::Placement;
use crate::oracle::Case;

/// A kernel of the programs that have large intermediate values, and its gradient.
fn programs(name: &str, elem: Elem) -> [Program; 2] {
    let items = oplus_front::compile(include_str!("../stages/large.scan")).unwrap_or_else(|e| panic!("{e}"));
    let mut kernels = items.iter().filter_map(|item| item.kernel());
    let program = kernels.find(|kernel| kernel.program.name == name).expect("a kernel").program.instantiate(elem);
    [program.clone(), adjoint(&program).expect("a gradient")]
}

#[test]
fn kernels_of_pairs_take_them_and_give_what_they_mean() {
    // Rows and columns that are computed are rounded to half types, and what is summed of them over all pairs in the gradient shows it.
    for (name, elem, has_gradient) in [
        ("alibi", Elem::Bf16, true),
        ("t5", Elem::Bf16, true),
        ("rotary", Elem::Bf16, false),
        ("rotary", Elem::F32, true),
        ("rotary_relative", Elem::Bf16, false),
        ("rotary_relative", Elem::F32, true),
        ("mla", Elem::Bf16, false),
        ("mla", Elem::F32, true),
        ("dropout", Elem::F16, true),
        ("dropout", Elem::F32, true),
    ] {
        let mut pairs = 0;
        for program in programs(name, elem).into_iter().take(if has_gradient { 2 } else { 1 }) {
            for (m, n) in [(17, 33), (70, 5), (1, 1)] {
                let size = |axis: &String| match axis.as_str() {
                    "M" => m,
                    "N" => n,
                    "E" | "F" | "P" => 32,
                    "R" => 3,
                    _ => 2,
                };
                let sizes: Vec<usize> = program.axes.iter().map(size).collect();
                let placement = if m == 17 { Placement::Contiguous } else { Placement::Misaligned };
                let case = Case { program: &program, sizes: &sizes, placement, order: Order::Ascending };
                let work = case.check_cut(CutKind::PairwiseArranged, &Target::H200, 0);
                let is_of_pairs = |schedule: Schedule| matches!(schedule, Schedule::Flash(_));
                pairs += work.map_or(0, |work| work.launches.iter().filter(|l| is_of_pairs(l.schedule)).count());
            }
        }
        assert!(pairs > 0, "{name} in {elem}");
    }
}
