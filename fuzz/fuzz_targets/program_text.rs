//! The text of a program: an error, or a program that prints to a text which reads back to it, and can be judged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oplus_dsl::parse::parse;
use oplus_dsl::verify::verify;

fuzz_target!(|text: &str| {
    let Ok(program) = parse(text) else { return };
    assert_eq!(parse(&program.to_string()).as_ref(), Ok(&program));
    if verify(&program).is_ok() {
        let simple = oplus_dsl::simplify::simplify(&program);
        assert_eq!(verify(&simple), Ok(()), "{simple}");
        let _ = oplus_dsl::adjoint::adjoint(&program);
    }
});
