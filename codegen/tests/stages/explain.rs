//! Explanations of plans.

use oplus_codegen::explain::{Candidate, Explanation};
use oplus_codegen::plan::plan;
use oplus_codegen::target::Target;

use super::plan::call;
use super::programs;
use super::run::program;

fn explained(text: &str, sizes: &[i64]) -> Explanation {
    let program = program(text);
    Explanation::of(&program, &plan(&program, &call(&program, sizes), &Target::H200).expect("plans"))
}

#[test]
fn an_explanation_reads_well() {
    let mut explanation = explained(programs::DECAY_BACKWARD, &[4, 2048, 64, 64]);
    // Texts that depend on the numbers of schedules and of the cost model are not a matter of wording.
    for launch in &mut explanation.launches {
        launch.candidates =
            vec![Candidate { schedule: "schedule(number=1)".into(), micros: 12.3, why: "its reason".into() }];
        launch.refused = vec![("other(number=1)".into(), "what it lacks".into())];
        (launch.division, launch.grid) = ("how the work is divided".into(), "blocks of threads".into());
        launch.symbol = "symbol".into();
    }
    explanation.other_cuts = vec![("in another way".into(), "what the program lacks for it".into())];
    insta::assert_snapshot!(explanation);
}

#[test]
fn everything_that_was_weighed_is_named() {
    let explanation = explained(programs::AFFINE_BACKWARD, &[8192, 4096]);
    let [launch] = &explanation.launches[..] else { panic!("one launch") };
    assert_eq!((launch.reads.len(), launch.writes.len()), (5, 3));
    assert!(launch.candidates.len() >= 6 && launch.candidates.is_sorted_by(|a, b| a.micros <= b.micros));
    assert_eq!(launch.task, "reverse scan along L by Affine");
    assert!(explanation.to_string().contains(&launch.symbol));
}

#[test]
fn a_stage_that_produces_nothing_is_counted() {
    let explanation = explained(programs::CUMSUM, &[3, 0]);
    assert_eq!((explanation.launches.len(), explanation.skipped), (0, 1));
}
