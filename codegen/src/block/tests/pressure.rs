//! The registers that operators take.

use crate::block::pressure::{conversions, temporaries, words_per_element};
use crate::stage::{Stage, cut};
use oplus_dsl::parse::parse;

/// A scan of x by an operator of one field of type `ty`, whose combination is `combine`, the node number `last`.
fn stage(ty: &str, identity: &str, combine: &str, last: u32) -> Stage {
    let text = format!(
        "program p {{ axes L; param x: {ty}[L];
        operator Op(s: {ty}) {{ identity ({identity}); %0: {ty} = input l.s; %1: {ty} = input r.s; {combine} combine (%{last}); }}
        %0: {ty}[L] = param x; %1: tuple[L] = scan(L, Op, (%0)); %2: {ty}[L] = %1.s; output y: {ty}[L] = %2; }}"
    );
    let program = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    cut(&program).expect("cuts").stages.remove(0)
}

#[test]
fn a_sum_takes_its_element_alone() {
    for (ty, words) in [("f32", 1), ("f64", 2)] {
        let sum = stage(ty, "0.0", &format!("%2: {ty} = %0 + %1;"), 2);
        assert_eq!((words_per_element(&sum), temporaries(&sum), conversions(&sum)), (words, 0, 0), "{ty}");
    }
}

#[test]
fn functions_of_an_operator_take_temporaries() {
    let body = "%2: f32 = max(%0, %1); %3: f32 = %0 - %2; %4: f32 = exp(%3); %5: f32 = %1 - %2; %6: f32 = exp(%5);
        %7: f32 = %4 + %6; %8: f32 = ln(%7); %9: f32 = %2 + %8;";
    let sum = stage("f32", "-inf", body, 9);
    assert_eq!((words_per_element(&sum), temporaries(&sum)), (1, 32));
}
