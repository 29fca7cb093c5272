//! The front end of `scan!`: from tokens to programs and Rust items.
//!
//! The macro is a thin wrapper of this crate; `oplus bake` and fuzzers use it too, and [`compile`] does the same with a text
//! at run time, for programs and bindings that are given one. The stages are `parse` (tokens to a
//! [surface tree](syntax)), `lower` (names, types and axes; the result is an [`oplus_dsl::ir::Program`]) and `expand` (Rust
//! items). Everything that is wrong is collected as [`Diagnostics`], each with its tokens; no input panics.
//!
//! # The language
//!
//! A block holds operators, helper functions and kernels, in any order:
//!
//! ```text
//! scan! {
//!     /// First-order affine recurrence, h[t] = a[t]·h[t-1] + b[t].
//!     pub op Affine(a, b) {
//!         identity (1, 0);
//!         combine(l, r) (l.a * r.a, r.a * l.b + r.b);
//!     }
//!
//!     fn discretize(a, b, delta) -> (a_bar, b_bar) { (exp(delta * a), delta * b) }
//!
//!     /// Mamba S6 selective scan.
//!     pub fn selective_scan(
//!         u: [B, D, L], delta: [B, D, L], a: f32[D, N], b: [B, N, L], c: [B, N, L], skip: f32[D], h0: f32[B, D, N] = 0,
//!     ) -> (y: [B, D, L], h_last: f32[B, D, N]) {
//!         let (a_bar, b_bar) = discretize(a, b, delta);
//!         let h = scan(L, Affine(a_bar, b_bar * u), init = h0);
//!         y = sum(N, c * h.b) + skip * u;
//!         h_last = last(L, h.b);
//!     }
//! }
//! ```
//!
//! ## Operators
//!
//! `op Name(fields) { identity (…); combine(l, r) (…); }` declares an associative operator: its identity and, field by field,
//! the combination of a left and a right state. `combine` may have a block with `let`s as its body, and calls helper
//! functions. A field without a type takes the type of its element at each use, so an operator serves all types; a field
//! with one (`index: i64`) keeps it. In an identity `inf` and `-inf` mean the limits of the type, also of integer types.
//! `gauge m;` says that what users read from a state are the products p·exp(m) with its other fields p: no gradient flows
//! through m.
//!
//! `op Name(fields) where m >= 0, m <= 255 { … }` is an operator for some states only: those for which the conditions,
//! expressions of the fields, hold (`&&` is as good as a comma). The identity must be one of them, and the combination of
//! two of them. `no overflow` among the conditions says that integers never exceed their type when states are
//! combined. That elements and initial states are in this domain is the caller's promise; nothing checks it.
//!
//! The laws (identity, associativity, gauge, and that combinations stay in the domain) are checked where the operator is
//! declared, with f64 for fields without a type, and again where it is used with integers: see [`oplus_dsl::laws`] for what
//! is proved and what is sampled. The documentation of the generated item says which it was. The operators of the standard
//! library (`standard/operators.rs`) are always visible; a block's own operator of the same name goes first.
//!
//! `op Name(fields) -> (state) { combine(l, r) (…); }` declares one whose elements act on a state of its own, a vector or a matrix:
//! `op DeltaRule(beta, k: [K], v: [V]) -> (s: [K, V])`. The axes of a field are those that it varies along in one step; elements and
//! state may have others beside, along which all this is done for each index. `combine(l, r)` gives the next state from the
//! state `l.s` and the element r by products of the state with values, sums of such products over one of its axes, and values
//! without the state: a product with a matrix, and a sum. `rename(l.s, K = J)` is the state with J in the place of K, for products with whole
//! matrices: `sum(J, r.m * rename(l.s, K = J))`; both axes have one size. There is no identity: the state begins at 0, or at `init`. Such an
//! operator finds its axes by their names in the kernel; `DeltaRule(beta, k, v, K = N)` says which axis takes the place of K.
//!
//! ## Functions
//!
//! An `fn` without types is a helper: it is inlined where it is called, may give a tuple, and cannot call itself.
//!
//! An `fn` with types is a kernel. A tensor's type names its element type and its axes in memory order, last fastest:
//! `f32[B, L]`; `[B, L]` takes the element type of the call; `f32` and `[]` are scalars. A parameter with a default
//! (`= 0`) may be left out by the caller. Element types are `f64`, `f32`, `bf16`, `f16`, `i32`, `i64`, `u32`, `u64`,
//! `bool`, and two that follow from the call's, `wide` and `state`: both are `f64` in calls of `f64`, else `f32`. `wide` is for
//! what is at least `f32` whatever is stored beside it, as learned numbers are; maps of such parameters are computed in it. An
//! output in `state` holds what a scan or a reduction gave, without rounding it, so that the gradient reads it instead of
//! computing it again.
//!
//! A parameter may store one of two types, whichever the caller's tensor does: `i32 | i64[S]` and `u32 | u64[S]`, in either order,
//! are integers whose values have the wider type, and `call | wide[B, L]` may be `f32` beside half precision. The first is the one
//! that kernels are made for where no call says which. Each output is assigned once, `y = …;` or `(y, z) = …;`.
//!
//! ## Expressions
//!
//! Tokens and precedence are Rust's. Values have named axes and broadcast by name: the axes of `a * b` are those of both.
//!
//! | | |
//! |---|---|
//! | arithmetic | `+ - * / %`, `-x`; on integers also `& \| ^ << >>`, `!x` |
//! | truth values | `== != < <= > >=`, `&& \|\| !`, `if c { a } else { b }`, `select(c, a, b)`, `true`, `false` |
//! | functions | `exp exp2 ln log1p sqrt rsqrt recip tanh sigmoid softplus silu relu sin cos abs sign floor`, `min(x, y)`, `max(x, y)`, `powi(x, 3)`; made of these, `expm1 log2 round erf gelu`, `pow(x, y)`, `atan2(y, x)` |
//! | conversion | `x as f32`; to `bf16` and `f16` rounds and goes on in f32 |
//! | constants | `2`, `0.5`, `0xff`, `inf`, `pi` |
//! | blocks | `{ let (a, b) = f(x); a + b }` |
//! | positions | `index(L)` and `size(L)`, both `i64` |
//! | along an axis | `sum(N, x)`, `reduce(N, Op(x))`, `scan(L, Op(x))`, `last(L, x)`, `first(L, x)`, `shift(L, x, 1, fill = 0)` |
//!
//! A literal has no type of its own: it takes that of the operand it meets (of the call where it meets none), and arithmetic
//! between literals is exact, so `1 / 3` is a third. Floats of different width meet in the wider one. Nothing else converts
//! by itself, except that an output rounds a float to its element type.
//!
//! ## Scans and reductions
//!
//! `scan(L, Affine(a, b))` gives the running combinations along L as a state whose fields are read as `h.b`; a state of one
//! field is that field. `reduce` gives the total, `sum` is the reduction by addition. After the operator may follow:
//!
//! * `reverse`: from the last index to the first. `exclusive`: the state before each element instead of after it.
//! * `init = …`, the state before the first element: `(x, y)` gives all fields, `(b: x)` some by name, a state of the same
//!   operator all of its own; a single value means the *payload*, the one field that no other field's combination depends
//!   on (`b` of the affine operator). Fields that are not given start at the identity.
//! * For `segmented(Op)(…)`, a scan that begins again in each segment: `reset = flags`, true at the elements before which the
//!   state is forgotten, in the order in which the scan visits them; or `offsets = cu_seqlens`, a sorted list of the
//!   indices at which segments begin.
//!   With offsets of an axis `S + 1` each of the S sequences may begin at a state of its own, `init = h0` with `h0: state[S]`, and
//!   `last(L, h, offsets = cu_seqlens)` and `first` give one value for each.
//!
//! A kernel whose scans run forward along one axis, and whose state comes in by `init` parameters and goes out by `last`
//! outputs, also gets its one-step form for decoding, without that axis: see [`oplus_dsl::step`].
//!
//! rustc warns about parameters, `let`s, helper functions and private operators that nothing uses, as it does in Rust: an
//! underscore in front of the name says that this is meant, and so does `#[allow(unused_variables)]` on a kernel.
//!
//! `last(L, h.b)` of a scan's state gives the initial state when L has size 0; of any other value it gives `empty = …`, zero
//! by default. `shift(L, x, n, fill = …)` is x[t − n].

mod compile;
mod cursor;
mod diagnostics;
mod elsewhere;
mod expand;
mod extent;
mod generated;
pub mod items;
mod library;
mod lower;
mod mistake;
mod names;
mod parse;
mod source;
mod suggest;
pub mod syntax;
mod unused;

use oplus_dsl::ir::Program;
use oplus_dsl::step::step;
use proc_macro2::TokenStream;
use quote::quote;
use std::sync::LazyLock;

use expand::Framework;

pub use compile::{Position, TextError, TextMistake, compile, compile_source_file};
pub use diagnostics::{Diagnostic, Diagnostics};
pub use extent::Extent;
pub use items::Item;
pub use library::{KERNELS, MODELS};
pub use mistake::Mistake;
pub use source::{SourceError, scan_source_file};

/// The Rust items that a block stands for, with warnings about what it does not use; with mistakes, a `compile_error!` for
/// each beside items of the same names.
pub fn expand(tokens: TokenStream) -> TokenStream {
    expand_with(tokens, &Framework::Oplus)
}

/// The Rust items of a block for the tensors of a framework. The block begins with the path of the adapter crate in brackets:
/// `[::oplus_candle] pub fn …`. It has the items of [`expand`] but for gradients, which are the framework's.
pub fn expand_for(tokens: TokenStream) -> TokenStream {
    let (framework, block) = Framework::split(tokens);
    expand_with(block, &framework)
}

fn expand_with(tokens: TokenStream, framework: &Framework) -> TokenStream {
    let mut mistakes = Diagnostics::default();
    let block = parse::block(tokens, &mut mistakes);
    let lowered = lower::lower(&block, &mut mistakes);
    if !mistakes.is_empty() {
        return expand::fallback(block, &mistakes, framework);
    }
    let warnings = unused::warnings(&block);
    [expand::items(&block, &lowered, framework), warnings].into_iter().collect()
}

/// The modules `operators`, `kernels` and `models` of the standard library.
pub fn expand_standard() -> TokenStream {
    let operators = expand(library::OPERATORS.parse().unwrap_or_default());
    let library = expand_library(&Framework::Oplus);
    quote! {
        /// The standard operators, which every `scan!` block can use by name. The items here document them.
        pub mod operators {
            #operators
        }

        #library
    }
}

/// The modules `kernels` and `models` of the standard library for the tensors of a framework, whose adapter crate stands in
/// brackets as in [`expand_for`].
pub fn expand_standard_for(tokens: TokenStream) -> TokenStream {
    expand_library(&Framework::split(tokens).0)
}

/// The modules `kernels` and `models`.
fn expand_library(framework: &Framework) -> TokenStream {
    let kernels = expand_with(library::KERNELS.parse().unwrap_or_default(), framework);
    let models = expand_with(library::MODELS.parse().unwrap_or_default(), framework);
    quote! {
        /// The standard kernels: ready to call, with gradients.
        ///
        /// Rows come first and the time T, which is scanned, last. A single long row has B = 1.
        pub mod kernels {
            #kernels
        }

        /// Models of sequences, from the moving average to Mamba and gated linear attention: ready to call, with
        /// gradients, and one step at a time for decoding.
        ///
        /// The time T, which is scanned, comes last. Each model takes its state in (`h0`, zero when it is left out) and
        /// gives it out (`h_last`), so that a long sequence can be cut into chunks, and decoding goes on from a prefill by
        /// the model's `step`.
        pub mod models {
            #models
        }
    }
}

/// The programs of a block's kernels, in its order.
///
/// # Errors
/// All mistakes of the block.
pub fn programs(tokens: TokenStream) -> Result<Vec<Program>, Diagnostics> {
    let mut mistakes = Diagnostics::default();
    let block = parse::block(tokens, &mut mistakes);
    let lowered = lower::lower(&block, &mut mistakes);
    if mistakes.is_empty() { Ok(lowered.kernels.into_iter().flatten().collect()) } else { Err(mistakes) }
}

/// The programs of the standard kernels, in the order of `standard/kernels.rs`.
pub fn standard_programs() -> Vec<Program> {
    static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| of_text(library::KERNELS));
    PROGRAMS.clone()
}

/// The programs of the standard models, in the order of `standard/models.rs`.
pub fn model_programs() -> Vec<Program> {
    static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| of_text(library::MODELS));
    PROGRAMS.clone()
}

/// The names of the models with rarer options, `standard/options.rs`, `packed.rs` and `delta.rs`: no kernels of them are committed.
pub fn option_models() -> Vec<String> {
    let block = parse::block(library::OPTIONS.parse().unwrap_or_default(), &mut Diagnostics::default());
    block.kernels.into_iter().map(|kernel| kernel.name.text).collect()
}

/// The programs of all standard kernels and models, and of their one-step forms.
pub fn library_programs() -> Vec<Program> {
    let whole = [standard_programs(), model_programs()].concat();
    let steps: Vec<Program> = whole.iter().filter_map(|program| Some(step(program).ok()?.program)).collect();
    [whole, steps].concat()
}

/// The programs of a block of the standard library, which has no mistakes.
fn of_text(text: &str) -> Vec<Program> {
    programs(text.parse().unwrap_or_default()).unwrap_or_default()
}
