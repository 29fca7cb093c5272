//! Any tokens: no panic, no exhausted stack, no endless expansion, and always Rust items as the result.

use oplus_front::{compile, compile_source_file, expand, scan_source_file};
use proc_macro2::{TokenStream, TokenTree};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Words and signs of the language, and some of Rust that are not.
const WORDS: [&str; 70] = [
    "op",
    "fn",
    "pub",
    "let",
    "if",
    "else",
    "as",
    "identity",
    "combine",
    "gauge",
    "scan",
    "reduce",
    "sum",
    "last",
    "first",
    "shift",
    "index",
    "size",
    "select",
    "powi",
    "max",
    "exp",
    "segmented",
    "reverse",
    "exclusive",
    "init",
    "reset",
    "offsets",
    "fill",
    "empty",
    "inf",
    "pi",
    "true",
    "f32",
    "i64",
    "bool",
    "Sum",
    "Affine",
    "ArgMax",
    "l",
    "r",
    "s",
    "x",
    "y",
    "T",
    "_",
    "for",
    "self",
    "0",
    "1",
    "2.5",
    "1f32",
    "'a'",
    "\"s\"",
    "+",
    "-",
    "*",
    "/",
    "!",
    "&&",
    "==",
    "=",
    "<",
    ".",
    ",",
    ";",
    ":",
    "->",
    "#",
    "?",
];

/// Token text with balanced brackets.
fn soup() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(WORDS.to_vec()).prop_map(str::to_owned);
    word.prop_recursive(6, 120, 12, |inner| {
        let list = prop::collection::vec(inner, 0..12).prop_map(|words| words.join(" "));
        (list, 0..3usize).prop_map(|(inside, bracket)| {
            let (open, close) = [("(", ")"), ("{", "}"), ("[", "]")][bracket];
            format!("{open} {inside} {close}")
        })
    })
}

/// Blocks to be broken: the selective scan, and each item of the standard library.
fn blocks() -> Vec<TokenStream> {
    let standard = [
        include_str!("../../standard/operators.rs"),
        include_str!("../../standard/kernels.rs"),
        include_str!("../../standard/models.rs"),
    ];
    let items = standard
        .into_iter()
        .flat_map(|text| text.split("\n\n"))
        .filter(|item| item.contains("fn ") || item.contains("op "));
    items.chain([include_str!("blocks/selective_scan.rs")]).map(|text| text.parse().expect("tokens")).collect()
}

/// One change somewhere in a tree of tokens: a token dropped, doubled, or replaced by another one of the tree.
fn broken(tokens: TokenStream, mut at: usize, change: usize, flat: &[TokenTree]) -> TokenStream {
    let mut result = vec![];
    for token in tokens {
        at = at.wrapping_sub(1);
        let token = match token {
            TokenTree::Group(group) if at < 1 << 20 => {
                let inside = broken(group.stream(), at, change, flat);
                at = at.wrapping_sub(count(group.stream()));
                TokenTree::Group(proc_macro2::Group::new(group.delimiter(), inside))
            }
            token => token,
        };
        match (at == 0, change % 3) {
            (true, 0) => {}
            (true, 1) => result.extend([token.clone(), token]),
            (true, _) => result.push(flat[change % flat.len()].clone()),
            _ => result.push(token),
        }
    }
    result.into_iter().collect()
}

fn count(tokens: TokenStream) -> usize {
    flatten(tokens).len()
}

fn flatten(tokens: TokenStream) -> Vec<TokenTree> {
    tokens
        .into_iter()
        .flat_map(|token| {
            let inside = if let TokenTree::Group(group) = &token { flatten(group.stream()) } else { vec![] };
            std::iter::once(token).chain(inside)
        })
        .collect()
}

/// Expands and demands Rust items.
fn expands(tokens: TokenStream) {
    let expansion = expand(tokens.clone());
    let error = syn::parse2::<syn::File>(expansion).err();
    assert!(error.is_none(), "{tokens}\ndoes not expand to items: {error:?}");
}

/// Compiles a text: to the items of the macro, or with its mistakes, each at a place of the text.
fn compiles_as_the_macro_does(text: &str) {
    let expected = text.parse().ok().map(oplus_front::programs);
    match (compile(text), expected) {
        (Ok(_), Some(Ok(_))) => {}
        (Err(error), expected) => {
            let count = expected.map_or(1, |programs| programs.err().map_or(0, |mistakes| mistakes.len()));
            assert_eq!(error.mistakes.len(), count, "{text}: {error}");
            let is_place = |at: usize| text.is_char_boundary(at);
            assert!(error.mistakes.iter().all(|m| is_place(m.start.byte) && is_place(m.end.byte) && m.start <= m.end));
        }
        (found, expected) => panic!("{text}: {found:?} instead of {expected:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120, rng_seed: RngSeed::Fixed(0x0005_ca45), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_tokens_expand_to_items(words in prop::collection::vec(soup(), 0..12)) {
        expands(words.join(" ").parse().expect("balanced tokens"));
    }

    #[test]
    fn any_body_of_a_kernel_expands_to_items(words in prop::collection::vec(soup(), 0..12)) {
        let block = format!("pub fn k(x: [B, T], n: i32[T] = 1) -> (y: [B, T]) {{ {} }}", words.join(" "));
        expands(block.parse().expect("balanced tokens"));
    }

    #[test]
    fn right_blocks_with_one_change_expand_to_items(block in any::<prop::sample::Index>(), at in 1..400usize, change in 0..1000usize) {
        let block = block.get(&blocks()).clone();
        let flat = flatten(block.clone());
        expands(broken(block, 1 + at % flat.len(), change, &flat));
    }

    #[test]
    fn right_texts_with_changed_characters_are_read(
        block in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), "\\PC|[(){};,.<>=\"'0-9]"), 1..4),
    ) {
        let mut text: Vec<char> = block.get(&blocks()).to_string().chars().collect();
        for (at, other) in changes {
            let at = at.index(text.len());
            text.splice(at..=at, other.chars());
        }
        let text: String = text.into_iter().collect();
        compiles_as_the_macro_does(&text);
        let _ = scan_source_file(&format!("scan! {{ {text} }}"));
        if let Ok(tokens) = text.parse() {
            expands(tokens);
        }
    }

    #[test]
    fn any_text_is_read_as_a_source_file(text in ".{0,200}") {
        compiles_as_the_macro_does(&text);
        let _ = compile_source_file(&text);
        let _ = scan_source_file(&text);
        let _ = scan_source_file(&format!("scan! {{ {text} }}"));
    }
}

#[test]
fn attributes_of_keywords_are_refused_and_the_item_stays() {
    for attribute in ["#[pub = \"x\"]", "#[fn]", "#[a::struct(b)]", "#[doc = concat::if!(\"x\")]"] {
        let block: TokenStream =
            format!("{attribute} pub fn k(x: [T]) -> (y: [T]) {{ y = x; }}").parse().expect("tokens");
        assert!(oplus_front::programs(block.clone()).is_err(), "{attribute}");
        assert!(expand(block.clone()).to_string().contains("pub fn k"), "{attribute}");
        expands(block);
    }
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_a_small_stack() {
    let deep = |open: &str, close: &str| format!("{}x{}", open.repeat(5000), close.repeat(5000));
    let bodies = [
        deep("(", ")"),
        deep("-", ""),
        deep("{", "}"),
        deep("exp(", ")"),
        deep("if x > 0 { 1 } else { ", " }"),
        format!("x{}", " + x".repeat(5000)),
        format!("x{}", " as f32".repeat(5000)),
        format!("x{}", ".b".repeat(5000)),
        format!("x{}", " > 0 { 0 } else if x".repeat(5000)),
    ];
    for body in bodies {
        let blocks = [
            format!("fn k(x: [T]) -> (y: [T]) {{ y = {body}; }}"),
            format!("fn k(x: [T]) -> (y: [T]) {{ let {body} = x; y = x; }}"),
            format!("fn k(x: {body}) -> (y: [T]) {{ y = x; }}"),
        ];
        for block in blocks {
            let work = move || {
                let tokens: TokenStream = block.parse().expect("tokens");
                assert!(oplus_front::programs(tokens).is_err());
            };
            let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(work).expect("a thread");
            thread.join().expect("no panic");
        }
    }
}

#[test]
fn inlining_in_a_widening_tree_ends() {
    let helpers: String = (1..60).map(|i| format!("fn f{i}(x) {{ (f{}(x), f{}(x)) }} ", i - 1, i - 1)).collect();
    let tuples = "let x = (x, x); ".repeat(60);
    for block in [
        format!("fn f0(x) {{ x }} {helpers} fn k(x: [T]) -> (y: [T]) {{ y = f59(x); }}"),
        format!("fn k(x: [T]) -> (y: [T]) {{ {tuples} y = if true {{ x }} else {{ x }}; }}"),
        format!("fn f0(x) {{ x }} {helpers} op Bad(a) {{ identity (0); combine(l, r) (f59(l.a)); }}"),
    ] {
        expands(block.parse().expect("tokens"));
    }
}
