//! Texts that are no kernels, and what is said of them.

use crate::tile::{Kernel, Source};

/// A kernel around statements: one per line, from line 4 on.
fn text(body: &str) -> String {
    format!(
        "kernel k(x: read f32, y: write f32, m: messages, n: i64) threads 32 blocks_per_sm 1\nshared tile: f32[64]\nshared full: mbarrier[2]\n{body}\n"
    )
}

/// The faults of statements, and where they are.
fn error(body: &str) -> String {
    match text(body).parse::<Kernel>() {
        Ok(kernel) => panic!("it is a kernel:\n{kernel}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn statements_that_are_not_of_the_form() {
    let cases = [
        ("f1 = 1.0 +", "4:11: expected a register or a constant, found the end of the line"),
        ("f1 = exq(f2)", "4:6: there is no function `exq`"),
        ("f1 = q", "4:6: there is no parameter and no array `q`"),
        ("f1 = tile", "4:6: expected a parameter, found an array"),
        ("f1 = 2.0 3.0", "4:10: expected the end of the line, found `3.0`"),
        ("i1 = 1.5.2", "4:9: expected the end of the line, found `.`"),
        ("i1 = thread\n  f1 = 0.0", "5:3: register 1 is f32 here, but i32 where it stands as `i1`"),
        ("f9999999 = 0.0", "4:1: a kernel has at most 1048576 registers"),
        ("f1 = f32(1.0)", "4:10: nothing here says of which type 1.0 is: it may be written `1.0_f32`"),
        ("p1 = 1 < 2", "4:6: nothing here says of which type 1 is: it may be written `1_i32`"),
        ("f1 = abc_f32", "4:6: there is no parameter and no array `abc_f32`"),
        ("f1 = 1x", "4:6: `1x` is no constant of type f32"),
        ("load f1 = x[0] if p2", "4:21: expected `else`, found the end of the line"),
        ("load f1 = q[0]", "4:11: there is no parameter and no array `q`"),
        ("store y[0] 1.0", "4:12: expected `=`, found `1.0`"),
        ("bulk_load x[0] = x[0] × 4 on full[0]", "4:11: expected an array, found a parameter"),
        ("bulk_store y[0] = tile[0] by 4", "4:27: expected `×` and a size, found `by`"),
        ("full[0].open", "4:9: expected `init`, `arrive`, `expect`, `wait` or `copy_async_arrive`, found `open`"),
        ("full[0]", "4:8: expected `.`, found the end of the line"),
        ("#2[0].arrive", "4:2: there is no array of index 2: there are 2"),
        ("mma bf16 f1, f2 = (u1, u1, u1, u1) * (u2, u2) + (f1, f1, f1, f1)", "4:10: expected 4 registers of a product"),
        ("mma bf16 f1, f2, f3, f4 = (u5) * (u5, u5) + (f1, f1, f1, f1)", "4:28: expected 4 operands, found 1"),
        ("registers 24", "4:11: expected `up to` or `down to`, found `24`"),
        ("f1 = powi(f2, x)", "4:15: expected a whole exponent of 32 bits, found `x`"),
        ("if p1 { syncwarp", "4:9: expected the end of the line, found `syncwarp`"),
        ("if p1 {\n syncwarp", "6:1: expected `}`, found the end of the text"),
        ("}", "4:1: expected a statement, found `}`"),
        ("poll m tag u1 {\n [0] u2 u3\n}", "5:9: expected `tags`, found `u3`"),
        ("\"x[0].arrive", "4:1: the quotes are not closed on this line"),
        ("\"x\\q\"[0].arrive", "4:1: `\\q` stands for no character"),
        ("~", "4:1: unexpected character `~`"),
    ];
    for (body, expected) in cases {
        assert_eq!(error(body), expected, "{body}");
    }
}

#[test]
fn declarations_that_are_not_of_the_form() {
    let cases = [
        ("", "1:1: expected `kernel`, found the end of the text"),
        ("kernel", "1:7: expected the kernel's symbol, found the end of the line"),
        ("kernel k(x f32)", "1:12: expected `:`, found `f32`"),
        (
            "kernel k(x: red f32)",
            "1:13: expected `read`, `write`, `messages`, `control` or the type of a number, found `red`",
        ),
        ("kernel k(x: read f31)", "1:18: expected an element type, found `f31`"),
        ("kernel k() thread 32", "1:12: expected `threads`, found `thread`"),
        ("kernel k() threads many", "1:20: expected a number of threads, found `many`"),
        ("kernel k() threads 32 blocks_per_sm 1\nshared t: f32[-1]", "2:15: expected a number of elements, found `-`"),
        ("kernel k() threads 32 blocks_per_sm 1\nunused 7", "2:8: expected a register such as `f7` or `i2`, found `7`"),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<Kernel>().unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn statements_are_nested_only_so_deep() {
    let deep = format!("{}syncwarp\n{}", "loop {\n".repeat(200), "}\n".repeat(200));
    assert_eq!(error(&deep), "133:1: statements stand inside each other at most 128 deep");
}

#[test]
fn what_an_author_may_write_otherwise() {
    let written = "  // a comment
        i0 = thread // another
        copy_async tile[
            0] = x[0] x 4
        f2 = 1
        w3 = 18446744073709551615

        for i4 in 0..4 step 1 {
        syncwarp
        }";
    let printed = "unused i1
  i0 = thread
  copy_async tile[0] = x[0] × 4
  f2 = 1.0
  w3 = -1
  for i4 in 0..4 step 1 {
    syncwarp
  }";
    let kernel: Kernel = text(written).parse().unwrap();
    assert_eq!(kernel.to_string(), text(printed));
    assert_eq!(kernel.to_string().parse(), Ok(kernel));
}

#[test]
fn statements_know_their_lines() {
    let source = Source::parse(&text("if p1 {\n\n syncwarp\n} else {\n fence_async\n}\nfence_init")).unwrap();
    let mut found = vec![];
    for path in ["0", "0.then.0", "0.else.0", "1"] {
        let known = source.lines.iter().find(|(p, _)| p.to_string() == path);
        found.push(known.map(|(p, _)| source.line(p)));
    }
    assert_eq!(found, [Some(4), Some(6), Some(8), Some(10)]);
}
