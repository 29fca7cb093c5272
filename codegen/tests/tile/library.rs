//! The kernels of the standard library and of the models, under every schedule of both instruction sets.

use std::collections::BTreeSet;

use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::lower;
use oplus_codegen::target::{Isa, Target};
use oplus_codegen::tile::Source;
use oplus_codegen::verify::verify;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;

use super::round_trip;

/// One kernel in so many is tested: there are more than 50,000. A prime, so that all kinds come up.
const STRIDE: usize = 53;

/// The program of calls that give every parameter and want every output.
fn whole(program: &Program, elem: Elem) -> Program {
    let wanted: Vec<&str> = program.outputs.iter().map(|output| output.name.as_str()).collect();
    for_call(program, elem, &wanted, &[])
}

#[test]
fn every_schedule_of_the_library() {
    let (mut seen, mut kinds, mut tested) = (BTreeSet::new(), BTreeSet::new(), 0);
    let forward = oplus_front::library_programs();
    let programs = forward.iter().cloned().chain(forward.iter().filter_map(|program| adjoint(program).ok()));
    let instances = programs.flat_map(|p| [Elem::F32, Elem::Bf16].map(|elem| whole(&p, elem)));
    for program in instances {
        let stages = cuts(&program).expect("cuts").all().flat_map(|cut| cut.stages);
        for (stage, isa) in stages.flat_map(|stage| Isa::ALL.map(|isa| (stage.clone(), isa))) {
            for (stage, schedule) in variants(&stage, isa) {
                // No call takes a schedule that no device has the shared memory for.
                let fits = schedule.shared_bytes(&stage, isa) <= Target::H200.shared_bytes;
                if !fits || !seen.insert(format!("{}{schedule}{isa:?}", stage.program)) || seen.len() % STRIDE != 0 {
                    continue;
                }
                let kernel = lower(&stage, &schedule, schedule.isa(isa)).unwrap_or_else(|e| panic!("{schedule}: {e}"));
                round_trip(&kernel);
                let target = Target { isa, ..Target::H200 };
                let source = Source::parse(&kernel.to_string()).expect("reads");
                assert_eq!(verify(&source.kernel, &target), verify(&kernel, &target), "{schedule}");
                kinds.insert(schedule.name());
                tested += 1;
            }
        }
    }
    println!("{tested} of {} kernels", seen.len());
    assert!(tested > 100, "{tested}");
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}
