use crate::parse::parse;
use crate::testing::texts::AFFINE;
use crate::verify::verify;

use super::*;

/// The body of a program over params x and y, as it is after simplification.
fn simplified(body: &str, output: &str) -> String {
    let text = format!("program p {{ axes T; param x: f32[T]; param y: f32[T]; {body} output o: {output}; }}");
    let simple = simplify(&parse(&text).unwrap());
    assert_eq!(verify(&simple), Ok(()));
    let text = simple.to_string();
    let nodes = text.lines().filter(|line| line.trim_start().starts_with('%'));
    nodes.map(|line| line.trim().trim_end_matches(';')).collect::<Vec<_>>().join("; ")
}

const XY: &str = "%0: f32[T] = param x; %1: f32[T] = param y;";

/// An operation on x (%0), y (%1) and a constant (%2) becomes this.
fn check(constant: &str, ops: &str, expected: &str) {
    let last = 2 + ops.matches(';').count();
    let body = format!("{XY} %2: f32 = const {constant}; {ops}");
    assert_eq!(simplified(&body, &format!("f32[T] = %{last}")), expected, "{ops}");
}

const READ_XY: &str = "%0: f32[T] = param x; %1: f32[T] = param y";

#[test]
fn negations_move_outwards_and_disappear() {
    let neg = "%3: f32[T] = neg(%1);";
    check("0.0", &format!("{neg} %4: f32[T] = %0 + %3;"), &format!("{READ_XY}; %2: f32[T] = %0 - %1"));
    check("0.0", &format!("{neg} %4: f32[T] = %3 + %0;"), &format!("{READ_XY}; %2: f32[T] = %0 - %1"));
    check("0.0", &format!("{neg} %4: f32[T] = %0 - %3;"), &format!("{READ_XY}; %2: f32[T] = %0 + %1"));
    let minus = format!("{READ_XY}; %2: f32[T] = %0 * %1; %3: f32[T] = neg(%2)");
    check("0.0", &format!("{neg} %4: f32[T] = %0 * %3;"), &minus);
    check("-1.0", "%3: f32[T] = %0 * %2;", "%0: f32[T] = param x; %1: f32[T] = neg(%0)");
}

#[test]
fn what_may_change_a_bit_stays() {
    let read = "%0: f32[T] = param x; %1: f32 = const 0.0";
    check("0.0", "%3: f32[T] = %0 + %2;", &format!("{read}; %2: f32[T] = %0 + %1"));
    check("0.0", "%3: f32[T] = %0 * %2;", &format!("{read}; %2: f32[T] = %0 * %1"));
    check("0.0", "%3: f32[T] = %0 - %2;", "%0: f32[T] = param x");
    let difference = "%0: f32[T] = param x; %1: f32[T] = %0 - %0";
    check("0.0", "%3: f32[T] = %0 - %0;", difference);
}

#[test]
fn a_commuted_product_is_the_same_product() {
    let ops = "%3: f32[T] = %0 * %1; %4: f32[T] = %1 * %0; %5: f32[T] = %3 - %4;";
    check("0.0", ops, &format!("{READ_XY}; %2: f32[T] = %0 * %1; %3: f32[T] = %2 - %2"));
    let ordered = "%3: f32[T] = %0 max %1; %4: f32[T] = %1 max %0; %5: f32[T] = %3 - %4;";
    let ordered = ordered.replace("%0 max %1", "max(%0, %1)").replace("%1 max %0", "max(%1, %0)");
    let kept = format!("{READ_XY}; %2: f32[T] = max(%0, %1); %3: f32[T] = max(%1, %0); %4: f32[T] = %2 - %3");
    check("0.0", &ordered, &kept);
}

#[test]
fn a_condition_is_asked_once() {
    let ops = "%3: bool[T] = %0 < %1; %4: f32[T] = select(%3, %0, %1); %5: bool[T] = not(%3); %6: f32[T] = select(%5, %4, %2);";
    let expected = format!("{READ_XY}; %2: f32 = const 2.0; %3: bool[T] = %0 < %1; %4: f32[T] = select(%3, %2, %1)");
    check("2.0", ops, &expected);
}

#[test]
fn broadcasts_that_another_operand_makes_are_left_out() {
    let body = "%0: f32[T] = param x; %1: f32 = const 2.0; %2: f32[T] = broadcast(%1); %3: f32[T] = %0 * %2;";
    let expected = "%0: f32[T] = param x; %1: f32 = const 2.0; %2: f32[T] = %0 * %1";
    assert_eq!(simplified(body, "f32[T] = %3"), expected);
}

/// The scan of a program with one, written out: fields, number of elements and of initial values.
fn scan(field: &str, init: &str) -> (Vec<String>, usize, usize) {
    let text = format!(
        "program p {{ axes T; param x: f32[T]; param y: f32[T]; {AFFINE} {XY}
        %2: f32 = const 1.0; %3: f32 = const 0.0;
        %4: tuple[T] = scan(T, Affine, (%0, %1){init}); %5: f32[T] = %4.{field};
        output o: f32[T] = %5; }}"
    );
    let simple = simplify(&parse(&text).unwrap());
    assert_eq!(verify(&simple), Ok(()));
    let scan = simple.nodes.iter().find_map(|node| match &node.op {
        Op::Scan { operator, elements, init, .. } => Some((*operator, elements.len(), init.len())),
        _ => None,
    });
    let (operator, elements, init) = scan.unwrap();
    (simple.operator(operator).fields.iter().map(|f| f.name.clone()).collect(), elements, init)
}

#[test]
fn only_fields_that_matter_are_carried() {
    assert_eq!(scan("b", ""), (vec!["a".to_owned(), "b".to_owned()], 2, 0));
    assert_eq!(scan("a", ""), (vec!["a".to_owned()], 1, 0));
    assert_eq!(scan("a", ", init (%3, %3)"), (vec!["a".to_owned()], 1, 1));
}

#[test]
fn an_initial_state_that_is_the_identity_is_left_out() {
    assert_eq!(scan("b", ", init (%2, %3)").2, 0);
    assert_eq!(scan("b", ", init (%3, %3)").2, 2);
}

#[test]
fn parameters_stay_until_they_are_pruned() {
    let text = format!("program p {{ axes T; param x: f32[T]; param y: f32[T]; {XY} output o: f32[T] = %1; }}");
    let simple = simplify(&parse(&text).unwrap());
    assert_eq!(simple.params.len(), 2);
    let pruned = prune_params(&simple);
    assert_eq!(verify(&pruned), Ok(()));
    assert_eq!(pruned.params.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["y"]);
    assert_eq!(pruned.nodes[0].op, Op::Param(0));
}

#[test]
fn an_invalid_program_is_given_back() {
    let text = format!("program p {{ axes T; param x: f32[T]; param y: f32[T]; {XY} output o: f32[T] = %7; }}");
    let program = parse(&text).unwrap();
    assert_eq!(simplify(&program), program);
}
