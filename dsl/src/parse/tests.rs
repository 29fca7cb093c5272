use crate::ir::Op;
use crate::verify::verify;

use super::*;

/// The example of the documentation of [`crate::print`].
fn example() -> String {
    let docs: Vec<&str> = include_str!("../print.rs").lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let start = docs.iter().position(|line| line.starts_with("program")).unwrap();
    let end = docs.iter().position(|line| *line == "}").unwrap();
    docs[start..=end].join("\n") + "\n"
}

#[test]
fn the_documented_example_reads_and_prints_itself() {
    assert_eq!(parse(&example()).unwrap().to_string(), example());
}

#[test]
fn every_prefix_and_every_lost_character_is_an_error_or_a_program() {
    let text = example();
    for i in 0..text.len() {
        assert!(i + 1 == text.len() || parse(&text[..i]).is_err());
        let lost = text[..i].to_owned() + &text[i + 1..];
        assert!(parse(&lost).is_ok_and(|p| parse(&p.to_string()) == Ok(p)) || parse(&lost).is_err());
    }
}

#[test]
fn literals_survive_bit_by_bit() {
    let floats = [0.0, -0.0, 1.0, -1.5e-300, f64::MAX, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let odd = [f64::from_bits(0x7ff8_0000_0000_0001), f64::from_bits(0xfff8_0000_0000_0000)];
    let floats = floats.into_iter().chain(odd).map(Literal::Float);
    let others = [Literal::Int(i64::MIN), Literal::Int(i64::MAX), Literal::Bool(true), Literal::Bool(false)];
    for literal in floats.chain(others) {
        let program = parse(&format!("program p {{ %0: call = const {literal}; }}")).unwrap();
        assert_eq!(program.nodes[0].op, crate::ir::Op::Const(literal));
    }
}

#[test]
fn names_that_are_not_unique_are_numbered() {
    let text = "program p {\n    axes A, A;\n    param x: f32[A, #1];\n    param x: f32;\n    \
                %0: f32[A, #1] = param x;\n    %1: f32 = param #1;\n}\n";
    assert_eq!(parse(text).unwrap().to_string(), text);
}

#[test]
fn errors_say_where_and_what() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(error("program"), "1:8: expected a name for the program, found the end of the text");
    assert_eq!(error("program p {\n  %1: f32 = const 1.0;\n}"), "2:3: expected `%0`, found `%1`");
    assert_eq!(error("program p { param x: f31; }"), "1:22: expected an element type, found `f31`");
    assert_eq!(error("program p { param x: f32[B]; }"), "1:26: there is no axis named `B`");
    assert_eq!(error("program p { %0: f32 = cosh(%0); }"), "1:23: there is no operation named `cosh`");
    assert_eq!(error("program p { é § }"), "1:15: unexpected character `\\u{a7}`");
    assert_eq!(error("program p { axes A; %0: f32[#64] = const 1.0; }"), "1:29: a program has at most 64 axes");
}

/// A saturating counter and what it needs to hold.
const SATURATING: &str = "\
program count {
    axes T;
    param x: u32[T];
    operator Sat(m: u32, n: call) {
        identity (0, 0.0);
        where {
            %0: u32 = input m;
            %1: u32 = const 255;
            %2: bool = %0 <= %1;
            %3: call = input n;
            %4: call = const 0.0;
            %5: bool = %3 >= %4;
            holds (%2, %5);
            no overflow;
        }
        %0: u32 = input l.m;
        %1: call = input l.n;
        combine (%0, %1);
    }
}
";

#[test]
fn domains_are_read_back() {
    let program = parse(SATURATING).unwrap();
    assert_eq!(program.to_string(), SATURATING);
    let domain = &program.operators[0].domain;
    assert_eq!((domain.conditions.len(), domain.no_overflow, domain.dependencies()), (2, true, vec![1, 2]));
    let without = SATURATING.replace("            no overflow;\n", "");
    assert_eq!(parse(&without).unwrap().to_string(), without);
    assert_eq!(program.instantiate(Elem::F32).operators[0].domain.body[3].ty, Ty::F32);
    let of_n = domain.restricted(0b10, |k| k - 1);
    assert_eq!((of_n.body.len(), of_n.body[0].op.clone(), of_n.dependencies()), (3, Op::Input(0), vec![1]));
    assert_eq!(verify(&program), Ok(()));
    assert_eq!(domain.and(&of_n).dependencies(), [1, 2, 1]);
}

#[test]
fn what_is_wrong_with_a_domain_is_said() {
    let errors = |from: &str, to: &str| {
        let errors = verify(&parse(&SATURATING.replacen(from, to, 1)).unwrap()).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let place = "operator `Sat`, node";
    assert_eq!(
        errors("input m;", "input #2;"),
        [format!("{place} %0 (`input`) of its domain: there is no field number 2")]
    );
    let number = format!("{place} %0 (`input`) of its domain: the value is `u32`, not `bool`");
    assert_eq!(errors("holds (%2, %5)", "holds (%0, %5)"), [number]);
    assert_eq!(errors("holds (%2, %5)", "holds (%9)"), ["operator `Sat`: there is no value number 9"]);
}

#[test]
fn domains_that_are_not_of_the_form_are_refused_on_their_token() {
    let message = |from: &str, to: &str| parse(&SATURATING.replacen(from, to, 1)).unwrap_err().to_string();
    assert_eq!(message("input m;", "input l.m;"), "7:29: there is no field named `l.m`");
    assert_eq!(message("holds (%2, %5);", ""), "14:13: expected `holds`, found `no`");
    assert_eq!(message("no overflow;", "no end;"), "14:16: expected `overflow`, found `end`");
}
