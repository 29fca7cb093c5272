//! The expansion of blocks.

use oplus_front::expand;
use proc_macro2::TokenStream;

/// The expansion as formatted Rust; it must be a file of valid items.
fn expanded(block: &str) -> String {
    let tokens: TokenStream = block.parse().expect("tokens");
    let file = syn::parse2(expand(tokens)).expect("the expansion is Rust");
    prettyplease::unparse(&file)
}

#[test]
fn a_kernel_with_a_gradient() {
    let block = "
        /// Leaky sum, y[t] = decay·y[t−1] + x[t].
        pub fn leaky(x: [B, T], decay: f32, y0: f32[B] = 0, count: i32[B] = 1) -> (y: [B, T], n: i32[B]) {
            y = scan(T, Affine(decay, x), init = y0).b;
            n = count + 1;
        }
    ";
    insta::assert_snapshot!(expanded(block));
}

#[test]
fn an_operator_and_a_kernel_without_a_gradient() {
    let block = "
        /// Bitwise or.
        op Any(bits: u32) { identity (0); combine(l, r) (l.bits | r.bits); }
        fn seen(x: u32[T]) -> (y: u32[T]) { y = scan(T, Any(x)); }
    ";
    insta::assert_snapshot!(expanded(block));
}

#[test]
fn a_wrong_block_still_declares_its_items() {
    let block = "
        pub op Bad(s) { identity (0, 0); combine(l, r) (l.s + r.t); }
        pub fn wrong(x: [T]) -> (y: [T]) { y = sacn(T, Sum(x)); }
    ";
    insta::assert_snapshot!(expanded(block));
}

#[test]
fn expansions_stay_small() {
    let text = include_str!("../../standard/kernels.rs");
    for block in text.split("\n\n").filter(|block| block.contains("pub fn")) {
        let expansion = expanded(block);
        let lines = expansion.lines().filter(|line| !line.trim_start().starts_with("///")).count();
        let kernels = expansion.matches("::oplus::Kernel::new").count();
        assert!(lines < 150 * kernels, "{lines} lines for {kernels} kernels of\n{block}");
    }
}
