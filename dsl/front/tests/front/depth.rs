//! Blocks far larger and deeper than any that is written by hand, on a thread with a small stack.

use std::thread;

use oplus_front::{SourceError, expand, scan_source_file};
use proc_macro2::TokenStream;

/// Runs a test on a thread whose stack would not hold a recursion over the block.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(1 << 20).spawn(test).expect("a thread");
    thread.join().expect("no panic");
}

/// A kernel of a body.
fn kernel(body: &str) -> String {
    format!("pub fn deep(x: [T]) -> (y: [T]) {{ {body} }}")
}

/// `let a1 = a0 * x; …`, so many of them, and the output.
fn chain(n: usize) -> String {
    let lets: String = (1..=n).map(|k| format!("let a{k} = a{} * x;\n", k - 1)).collect();
    kernel(&format!("let a0 = x; {lets} y = a{n};"))
}

/// The mistakes of a block, one a line; none if it has no mistakes.
fn mistakes(block: &str) -> String {
    match scan_source_file(&format!("scan! {{ {block} }}")) {
        Ok(_) => String::new(),
        Err(SourceError::Mistakes(mistakes)) => mistakes.to_string(),
        Err(error) => panic!("{error}"),
    }
}

fn is_refused(block: &str, why: &str) {
    let mistakes = mistakes(block);
    assert!(mistakes.contains(why), "{mistakes}");
}

#[test]
fn thousands_of_statements_expand() {
    on_small_stack(|| {
        let tokens: TokenStream = chain(20_000).parse().expect("tokens");
        let items = expand(tokens).to_string();
        assert!(items.contains("pub fn deep") && !items.contains("compile_error"));
        assert!(items.len() < 1 << 24, "{}", items.len());
    });
}

#[test]
fn statements_that_do_not_depend_on_each_other_expand() {
    on_small_stack(|| {
        let lets: String = (0..10_000).map(|k| format!("let a{k} = x * {k};\n")).collect();
        let sums: String = (1..10_000).map(|k| format!("let s = s + a{k};\n")).collect();
        let tokens: TokenStream = kernel(&format!("{lets} let s = a0; {sums} y = s;")).parse().expect("tokens");
        assert!(!expand(tokens).to_string().contains("compile_error"));
    });
}

#[test]
fn more_statements_than_a_kernel_may_have_are_refused_in_words() {
    on_small_stack(|| is_refused(&chain(100_000), "`deep` has too many operations"));
}

#[test]
fn as_many_mistakes_as_statements_are_told_in_seconds() {
    on_small_stack(|| {
        let lets: String = (0..20_000).map(|k| format!("let b{k} = missing{k} * x;\n")).collect();
        is_refused(&kernel(&format!("{lets} y = x;")), "there is no value `missing0`");
    });
}

#[test]
fn nesting_is_refused_in_words_however_deep_it_is() {
    on_small_stack(|| {
        for n in [200, 20_000] {
            let nested = |open: &str, close: &str| kernel(&format!("y = {}x{};", open.repeat(n), close.repeat(n)));
            for (open, close) in [("(", ")"), ("{", "}"), ("-", ""), ("exp(", ")"), ("x + (", ")")] {
                is_refused(&nested(open, close), "nested too deeply");
            }
            is_refused(&nested("if x > 0 { x } else ", " "), "");
            is_refused(&kernel(&format!("y = x{};", " + x".repeat(n))), "nested too deeply");
            is_refused(&kernel(&format!("let {}a{} = x; y = x;", "(".repeat(n), ")".repeat(n))), "nested too deeply");
        }
    });
}
