//! The kernels and models of the library.

use oplus_dsl::ir::{Op, Program};
use oplus_front::library_programs;

use crate::harness::{Case, divisions};

/// Sizes of the axes: a prime number of times, and of queries and keys, and little else.
fn sizes(program: &Program) -> Vec<usize> {
    let size = |name: &String| match name.as_str() {
        "T" => 11,
        "M" | "N" if program.name.starts_with("attention") => 5,
        "B" | "G" => 1,
        "S" => 4,
        _ => 2,
    };
    program.axes.iter().map(size).collect()
}

/// Whether a list of offsets is along the axis.
fn is_list(program: &Program, axis: &str) -> bool {
    program.nodes.iter().any(|node| matches!(node.op, Op::Starts { list, .. } if program.axis_name(list) == axis))
}

/// Every kernel along its time, or whatever is scanned.
#[test]
fn sharded_along_time_is_whole() {
    let mut checked = 0;
    for program in library_programs() {
        let scanned = program.nodes.iter().find_map(|node| match node.op {
            Op::Scan { axis, .. } => Some(program.axis_name(axis).to_owned()),
            _ => None,
        });
        let Some(axis) = scanned else { continue };
        let case = Case::new(&program, &axis, &sizes(&program), 7);
        divisions(case.size()).iter().for_each(|parts| case.check(parts, 1e-11));
        checked += 1;
    }
    assert!(checked > 40, "{checked} kernels are scans");
}

/// Every kernel along each of its axes: sums, rows and keys of attention as well.
#[test]
fn sharded_along_any_axis_is_whole() {
    for program in library_programs() {
        for axis in program.axes.iter().filter(|axis| !is_list(&program, axis)) {
            if !program.params.iter().any(|param| param.axes.iter().any(|a| program.axis_name(*a) == axis)) {
                continue;
            }
            let case = Case::new(&program, axis, &sizes(&program), 11);
            let n = case.size();
            case.check(&[n / 2, n - n / 2], 1e-11);
        }
    }
}

/// Packed sequences whose borders fall on, before and behind those of shards.
#[test]
fn packed_sequences_cross_the_borders_of_shards() {
    for program in library_programs().into_iter().filter(|program| program.param("cu_seqlens").is_some()) {
        for seed in 0..6 {
            let case = Case::new(&program, "T", &sizes(&program), seed);
            case.check(&[3, 1, 0, 4, 3], 1e-11);
        }
    }
}
