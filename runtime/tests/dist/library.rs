//! The kernels and models of the library.

use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Node, Op, Program};
use oplus_dsl::shard::{ShardError, independent_axes, shard, shard_in_segments};
use oplus_front::library_programs;

use crate::harness::{Case, divisions, numbers};

/// Sizes of the axes: a prime number of times, and of queries and keys, and little else.
fn sizes(program: &Program) -> Vec<usize> {
    let size = |name: &String| match name.as_str() {
        "T" => 11,
        "M" | "N" if program.name.starts_with("attention") => 5,
        "B" | "G" => 1,
        "S" => 4,
        "S.ends" => 5,
        _ => 2,
    };
    program.axes.iter().map(size).collect()
}

/// Whether a list of offsets is along the axis.
fn is_list(program: &Program, axis: &str) -> bool {
    program.nodes.iter().any(|node| matches!(node.op, Op::Starts { list, .. } if program.axis_name(list) == axis))
}

/// Whether the axis is that of packed sequences with states, or of their offsets.
fn gathers(program: &Program, axis: &str) -> bool {
    let is_along = |other: Axis| program.axis_name(other) == axis;
    let is_taken = |node: &Node| matches!(node.op, Op::Gather { axis, to, .. } if is_along(axis) || is_along(to));
    axis.starts_with('S') && program.nodes.iter().any(is_taken)
}

/// Whether states are multiplied by matrices along the axis, or one after the other along it.
fn multiplies(program: &Program, axis: &str) -> bool {
    let is_it = |other: Axis| program.axis_name(other) == axis;
    program.nodes.iter().any(|node| match &node.op {
        Op::MatrixScan(scan) => is_it(scan.axis) || is_it(scan.along) || scan.others().any(is_it),
        _ => false,
    })
}

/// The axis along which a program scans, unless packed sequences have states of their own along it.
fn scanned(program: &Program) -> Option<String> {
    let axis = program.nodes.iter().find_map(|node| match node.op {
        Op::Scan { axis, .. } => Some(program.axis_name(axis).to_owned()),
        _ => None,
    });
    axis.filter(|axis| !gathers(program, axis))
}

/// Every kernel along its time, or whatever is scanned.
#[test]
fn sharded_along_time_is_whole() {
    let mut checked = 0;
    for program in library_programs() {
        let Some(axis) = scanned(&program) else { continue };
        let case = Case::new(&program, &axis, &sizes(&program), 7);
        divisions(case.size()).iter().for_each(|parts| case.check(parts, 1e-11));
        checked += 1;
    }
    assert!(checked > 40, "{checked} kernels are scans");
}

/// Calls in two parts of their rows, one row in the first and two in the second, give what calls of all rows give, and the same bits.
#[test]
fn rows_in_parts_are_whole() {
    let mut divided = 0;
    for program in library_programs() {
        let Some(axis) = scanned(&program) else { continue };
        let independent = independent_axes(&program);
        let rows = independent.first().map_or(0, |axis| axis.0 as usize);
        let sizes: Vec<usize> =
            sizes(&program).into_iter().enumerate().map(|(k, n)| if k == rows { 3 } else { n }).collect();
        if independent.is_empty() || program.axis_name(independent[0]) == axis {
            continue;
        }
        let case = Case::new(&program, &axis, &sizes, 23);
        let n = case.size();
        for (parts, segments) in [(vec![n - 4, 4], 1), (vec![0, n - 8, 8], 4), (vec![n - 3, 3], 3)] {
            case.check_in(&parts, (segments, 2), 1e-11);
        }
        let bits = |rows| {
            let given = case.run_in(&[n - 4, 4], (1, rows)).into_iter().map(|given| given.expect("is called").0);
            given
                .flatten()
                .map(|tensor| numbers(&tensor).into_iter().map(f64::to_bits).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(2), bits(1), "{program}");
        divided += 1;
    }
    assert!(divided > 30, "{divided} kernels have independent rows");
}

#[test]
fn rows_are_independent_along_axes_that_nothing_is_summed_over() {
    let names = |program: &Program| -> Vec<String> {
        independent_axes(program).into_iter().map(|axis| program.axis_name(axis).to_owned()).collect()
    };
    let of = |name: &str| library_programs().into_iter().find(|program| program.name == name).expect("is there");
    assert_eq!(names(&of("affine")), ["B"]);
    assert_eq!(names(&of("selective_scan")), ["B", "G", "D"]);
    // Gradients of A and D are summed over all sequences, those of B and C over the channels of a group.
    assert_eq!(names(&adjoint(&of("selective_scan")).expect("has one")), ["G"]);
    assert_eq!(names(&adjoint(&of("affine")).expect("has one")), ["B"]);
    // The states of packed sequences are found by their number.
    assert!(!names(&of("mamba_packed_states")).contains(&"S".to_owned()));
}

/// Ranks whose shards are in segments give what the others give: all of them, none, or one alone, whose part has a size that the
/// number of segments divides.
#[test]
fn shards_in_segments_are_whole() {
    let mut segmented = 0;
    for program in library_programs() {
        let Some(axis) = scanned(&program) else { continue };
        let case = Case::new(&program, &axis, &sizes(&program), 19);
        let n = case.size();
        for (parts, segments) in [(vec![n - 1, 1], 2), (vec![n - 5, 2, 3], 3), (vec![0, n - 8, 8], 4), (vec![n], n)] {
            case.check_in_segments(&parts, segments, 1e-11);
        }
        segmented += usize::from(shard_in_segments(&program, &axis).expect("is divided").is_some());
    }
    assert!(segmented > 30, "{segmented} kernels have segments");
}

/// Every kernel along each of its axes: sums, rows and keys of attention as well.
#[test]
fn sharded_along_any_axis_is_whole() {
    for program in library_programs() {
        for axis in program.axes.iter().filter(|axis| !is_list(&program, axis) && !gathers(&program, axis)) {
            if !program.params.iter().any(|param| param.axes.iter().any(|a| program.axis_name(*a) == axis)) {
                continue;
            }
            if multiplies(&program, axis) {
                let error = shard(&program, axis).expect_err("states and their vectors are whole on every rank");
                assert_eq!(error, ShardError::Matrices { axis: axis.clone() });
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
    let is_packed = |program: &Program| {
        program.param("cu_seqlens").is_some() && !gathers(program, "T") && !multiplies(program, "T")
    };
    for program in library_programs().into_iter().filter(is_packed) {
        for seed in 0..6 {
            let case = Case::new(&program, "T", &sizes(&program), seed);
            case.check(&[3, 1, 0, 4, 3], 1e-11);
        }
    }
}

/// Packed sequences with states of their own are divided along their time, not among the sequences.
#[test]
fn sequences_with_states_stay_whole() {
    let mut refused = 0;
    for program in library_programs().into_iter().filter(|program| gathers(program, "S")) {
        let error = shard(&program, "S").expect_err("sequences are whole on every rank");
        assert_eq!(error, ShardError::Gather { axis: "S".to_owned() });
        refused += 1;
    }
    assert_eq!(refused, 7, "models with states of packed sequences");
}
