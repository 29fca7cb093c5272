//! Texts at run time: what `scan!` does with tokens, with a text that a program has been given.

mod docs;
mod error;
mod item;

use proc_macro2::{LexError, TokenStream};

use crate::diagnostics::Diagnostics;
use crate::items::Item;
use crate::{lower, parse, source};

pub use error::{Position, TextError, TextMistake};

/// The operators and kernels of a text, the body of a `scan!` block, in its order.
///
/// The text goes through what `scan!` does with it: names, types, axes, and the laws of its operators. A kernel that is
/// made of an item's program is the kernel of the macro, with its keys, bits and committed kernels. `cfg` is not
/// evaluated, and nothing warns of what is unused.
///
/// ```
/// let items = oplus_front::compile("
///     /// Peaks that sink.
///     fn peaks(x: [B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B]) {
///         h = scan(T, Max(x), init = h0);
///         h_last = last(T, h);
///     }
/// ")?;
/// let kernel = items[0].kernel().expect("a kernel");
/// assert_eq!((kernel.name.as_str(), kernel.docs.written.as_str()), ("peaks", "Peaks that sink."));
/// assert_eq!(kernel.params[1].axes, ["B"]);
/// assert_eq!(kernel.params[1].state.as_deref(), Some("h_last"));
///
/// let error = oplus_front::compile("fn f(x: [T]) -> (y: [T]) { y = x + z; }").unwrap_err();
/// assert_eq!(error.to_string(), "1:36: there is no value `z` here");
/// # Ok::<(), oplus_front::TextError>(())
/// ```
///
/// # Errors
/// All mistakes of the text, each with its place.
pub fn compile(text: &str) -> Result<Vec<Item>, TextError> {
    read(text, |tokens| vec![tokens])
}

/// The operators and kernels of all `scan! { … }` blocks of a Rust source file, in its order, as [`compile`] gives them.
/// Blocks are found as [`scan_source_file`](crate::scan_source_file) finds them.
///
/// # Errors
/// All mistakes of all blocks, each with its place in the file.
pub fn compile_source_file(text: &str) -> Result<Vec<Item>, TextError> {
    read(text, source::blocks)
}

/// More bytes than the lexer counts.
const MOST_BYTES: usize = 1 << 31;

/// Reads a text whose tokens hold some blocks.
fn read(text: &str, blocks: impl Fn(TokenStream) -> Vec<TokenStream> + Sync) -> Result<Vec<Item>, TextError> {
    if text.len() >= MOST_BYTES {
        return Err(TextError::too_long(text.len()));
    }
    apart(|| {
        let tokens = text.parse().map_err(|error: LexError| TextError::of_lexer(text, error.span()))?;
        let mut mistakes = Diagnostics::default();
        let mut items = vec![];
        for block in blocks(tokens) {
            let block = parse::block(block, &mut mistakes);
            let lowered = lower::lower(&block, &mut mistakes);
            items.extend(item::items(&block, &lowered));
        }
        if mistakes.is_empty() { Ok(items) } else { Err(TextError::of(&mistakes)) }
    })
}

/// Does work on a thread of its own, where that can be had. The lexer keeps every text that it reads until its thread
/// ends, so that a program that reads one text after the other would keep them all.
fn apart<T: Send>(work: impl Fn() -> T + Sync) -> T {
    let on_a_thread = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("oplus text".into()).spawn_scoped(scope, &work).ok()?;
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    on_a_thread.unwrap_or_else(work)
}
