//! The messages of rustc for every entry of the catalogue of mistakes.
//!
//! The messages are those of one toolchain (`rust-version` in the workspace). To write them again after a change of words:
//! `TRYBUILD=overwrite cargo test -p oplus-tests --test compile_fail`, and read the difference.

#[test]
fn every_mistake_is_told_on_its_token() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}

#[test]
fn tensors_of_gradients_have_the_types_of_their_kernel() {
    trybuild::TestCases::new().compile_fail("ui/typed/*.rs");
}

/// `silent.rs` has the unused items that give no warning.
#[test]
fn unused_items_give_warnings() {
    trybuild::TestCases::new().compile_fail("ui/warnings/*.rs");
}
