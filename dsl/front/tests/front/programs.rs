//! Programs that blocks become.

use crate::common::lowered;
use oplus_front::{library_programs, model_programs, standard_programs};

#[test]
fn the_selective_scan_reads_like_its_equations() {
    let block = include_str!("blocks/selective_scan.rs");
    insta::assert_snapshot!(lowered(block)[0]);
}

#[test]
fn every_standard_kernel_has_a_valid_program() {
    let text = include_str!("../../standard/kernels.rs");
    let names: Vec<String> = lowered(text).into_iter().map(|program| program.name).collect();
    let standard: Vec<String> = standard_programs().into_iter().map(|program| program.name).collect();
    assert_eq!(names, standard);
    assert_eq!(names.len(), text.matches("pub fn").count());
}

#[test]
fn every_standard_model_has_a_valid_program() {
    let text = concat!(
        include_str!("../../standard/models.rs"),
        include_str!("../../standard/linear.rs"),
        include_str!("../../standard/attention.rs"),
        include_str!("../../standard/options.rs"),
        include_str!("../../standard/packed.rs"),
        include_str!("../../standard/delta.rs"),
    );
    let names: Vec<String> = lowered(text).into_iter().map(|program| program.name).collect();
    let standard: Vec<String> = model_programs().into_iter().map(|program| program.name).collect();
    assert_eq!(names, standard);
    assert_eq!(names.len(), text.matches("pub fn").count());
}

#[test]
fn models_with_rarer_options_are_models() {
    let (models, options) = (model_programs(), oplus_front::option_models());
    let texts = [
        include_str!("../../standard/options.rs"),
        include_str!("../../standard/packed.rs"),
        include_str!("../../standard/delta.rs"),
    ];
    assert_eq!(options.len(), texts.concat().matches("pub fn").count());
    assert!(options.iter().all(|name| models.iter().any(|model| model.name == *name)), "{options:?}");
}

#[test]
fn types_that_cannot_stand_for_each_other_are_refused_in_words() {
    let refused = [
        ("(x: [T], at: i32 | u32[S]) -> (y: [T])", "write `i32 | i64`, `u32 | u64` or `call | wide`"),
        ("(x: [T], at: i32 | i64[S]) -> (y: f32 | f64[T])", "outputs of more than one element type are not part"),
    ];
    for (signature, words) in refused {
        let text = format!("fn f{signature} {{ y = scan(T, segmented(Sum)(x), offsets = at); }}");
        let mistakes = oplus_front::programs(text.parse().expect("tokens")).expect_err("a mistake");
        assert!(mistakes.to_string().contains(words), "{mistakes}");
    }
}

#[test]
fn no_two_programs_of_the_library_have_the_same_name() {
    let mut names: Vec<String> = library_programs().into_iter().map(|program| program.name).collect();
    names.sort();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    assert!(names.contains(&"mamba".to_owned()) && names.contains(&"mamba_step".to_owned()));
}

#[test]
fn the_standard_operators_keep_the_laws() {
    lowered(include_str!("../../standard/operators.rs"));
}
