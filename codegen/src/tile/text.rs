//! The text form of kernels: what [`Kernel`]'s `Display` writes and [`Source::parse`](super::Source::parse) reads.
//!
//! A verified kernel is the same after printing and parsing, and a text that is printed, parsed and printed again is the
//! same text.
//!
//! ```text
//! kernel double(x: read f32, y: write f32, n: i64) threads 128 blocks_per_sm 1
//! shared tile: f32[128]
//!   i0 = thread                         // comments go to the end of the line
//!   i1 = block
//!   i2 = i1 * 128
//!   i3 = i2 + i0
//!   l4 = i64(i3)
//!   l5 = n
//!   p6 = l4 < l5
//!   load f7 = x[l4] if p6 else 0.0
//!   store tile[i0] = f7
//!   barrier 0, 128
//!   load f8 = tile[i0]
//!   f9 = f8 + f8
//!   store y[l4] = f9 if p6
//! ```
//!
//! # Lines
//!
//! The first line declares the kernel: its symbol, its parameters with their kinds (`read E`, `write E`, `messages`,
//! `control`, or the type of a number), threads, blocks per multiprocessor, and `keep_reads` and `chain_addresses` where these are set. Then come
//! shared arrays, one per line, `mbarrier` or an element type and how many. Then come the statements, one per line;
//! `{` ends the line of a statement with a body, `}` has a line of its own. Indentation does not matter, and a
//! line goes on while a parenthesis or bracket is open.
//!
//! # Registers
//!
//! A register is its number behind the letter of its type, so that every use shows the type: `i` i32, `l` i64, `u` u32,
//! `w` u64, `f` f32, `d` f64, `p` bool. Nothing declares it. The registers that no statement mentions follow the
//! shared arrays in a line `unused f7, i9`; a number that is left out altogether is an `i32`.
//!
//! # Names
//!
//! Parameters and arrays stand by their names. A name that is a word of this form, a register or a number, or that has
//! other characters than letters, digits, `_` and `.`, stands in double quotes. Of several of one name the first has it;
//! the others are `$k`, the parameter of index k, or `#k`, the array of index k.
//!
//! # Constants
//!
//! A constant has the type of the place where it stands: that of the register assigned, of the other operand of a comparison, of
//! the elements stored, of an index. Where no place says it (an operand of a conversion or of `bits`, a comparison of two
//! constants), or says another one, the type follows behind `_`: `5_i64`, `0.5_f32`. Floats are the shortest digits that
//! give the number back, `inf`, `-inf` or `NaN`.
//!
//! # Computations
//!
//! `r = …` with an operand; `-a`, `!a`; `a + b` and the other signs of [`Binary`](oplus_dsl::ir::Binary), `max(a, b)`, `min(a, b)`;
//! `fma(a, b, c)`; `c ? a : b`; a [`Unary`](oplus_dsl::ir::Unary) by its name, `powi(a, 3)`; an element type as a
//! conversion, `bf16(a)`; `bits(a)`; `pack bf16(a, b)`, `low bf16(a)`, `high bf16(a)`; `exp2_fast`, `log2_fast`,
//! `tanh_fast`, `recip_fast`; a number among the parameters by its name; `thread`, `block`, `block_y`, `blocks`,
//! `lane`, `warp`. The negation of a constant is `-(1.0)`.
//!
//! # Statements
//!
//! | text | statement |
//! |---|---|
//! | `if c {` … `} else {` … `}` | [`Stmt::If`]; without `else` where that branch is empty |
//! | `for v in a..b step s {` … `}` | [`Stmt::For`] |
//! | `loop {` … `}`, `break if c` | [`Stmt::Loop`], [`Stmt::Break`] |
//! | `load r, … = x[k] if c else o` | [`Stmt::Load`]; `if c` only with a guard, `else o` without one only where it is not zero |
//! | `store x[k] = a, … if c` | [`Stmt::Store`] |
//! | `r = shuffle_up(a, n)`, `_down`, `_xor`, `_index`; `r = all(c)` | [`Stmt::Shuffle`], [`Stmt::All`] |
//! | `load_matrix r, … = t[k]`, `load_matrix_transposed` | [`Stmt::LoadMatrix`] |
//! | `store_matrix t[k] = a, …`, `store_matrix_transposed` | [`Stmt::StoreMatrix`] |
//! | `mma E r, … = (a, …) * (b, …) + (c, …)` | [`Stmt::Mma`] |
//! | `warpgroup_mma E transposed r, … += A * B + …` | [`Stmt::WarpgroupMma`]; `=` where the sums begin at zero; A is `(a, …)` or panels, panels are `t[k] rows 64 apart 4096` |
//! | `warpgroup_wait n r, …` | [`Stmt::WarpgroupWait`] |
//! | `syncwarp`, `barrier id, threads` | [`Stmt::SyncWarp`], [`Stmt::Barrier`] |
//! | `registers up to n`, `registers down to n` | [`Stmt::SetMaxRegisters`] |
//! | `m[k].init n`, `.arrive`, `.expect a`, `.wait a`, `.copy_async_arrive` | statements of an mbarrier |
//! | `fence_init`, `fence_async`, `fence_device` | [`Stmt::FenceInit`], [`Stmt::FenceAsync`], [`Stmt::FenceDevice`] |
//! | `bulk_load t[k] = x[k] × n on m[k]` | [`Stmt::BulkLoad`] |
//! | `bulk_store x[k] = t[k] × n`, `+=` where it adds, `bulk_wait n`, `bulk_wait_read n` | [`Stmt::BulkStore`], [`Stmt::BulkWait`] |
//! | `copy_async t[k] = x[k] × n if c` | [`Stmt::CopyAsync`]; the sign may also be written `x` |
//! | `r, r = draw_ticket c`, `reset_tickets c tag a` | [`Stmt::DrawTicket`], [`Stmt::ResetTickets`] |
//! | `publish m[k] = a, … tag a if c` | [`Stmt::Publish`] |
//! | `poll m tag a {` lines `[k] r, … tags r, …` `}` | [`Stmt::Poll`] |

use oplus_dsl::Ty;

#[cfg(doc)]
use super::Stmt;
use super::{Kernel, Special};

/// The words that start statements, or stand where the name of a parameter or an array may stand.
const WORDS: [&str; 46] = [
    "if",
    "else",
    "for",
    "in",
    "step",
    "loop",
    "break",
    "load",
    "store",
    "all",
    "load_matrix",
    "load_matrix_transposed",
    "store_matrix",
    "store_matrix_transposed",
    "mma",
    "warpgroup_mma",
    "warpgroup_wait",
    "syncwarp",
    "barrier",
    "registers",
    "fence_init",
    "fence_async",
    "fence_device",
    "bulk_load",
    "bulk_store",
    "bulk_wait",
    "bulk_wait_read",
    "copy_async",
    "draw_ticket",
    "reset_tickets",
    "publish",
    "poll",
    "shared",
    "unused",
    "thread",
    "block",
    "block_y",
    "blocks",
    "lane",
    "warp",
    "true",
    "false",
    "inf",
    "NaN",
    "keep_reads",
    "chain_addresses",
];

const SPECIALS: [(Special, &str); 6] = [
    (Special::Thread, "thread"),
    (Special::Block, "block"),
    (Special::BlockY, "block_y"),
    (Special::Blocks, "blocks"),
    (Special::Lane, "lane"),
    (Special::Warp, "warp"),
];

const LETTERS: [(Ty, char); 7] =
    [(Ty::I32, 'i'), (Ty::I64, 'l'), (Ty::U32, 'u'), (Ty::U64, 'w'), (Ty::F32, 'f'), (Ty::F64, 'd'), (Ty::Bool, 'p')];

/// The letter of registers of a type; `?` for a type that no register has.
pub(super) fn letter(ty: Option<Ty>) -> char {
    LETTERS.into_iter().find(|(t, _)| Some(*t) == ty).map_or('?', |(_, letter)| letter)
}

/// The type and number of the register that a word names, if it names one.
pub(super) fn register(word: &str) -> Option<(Ty, u32)> {
    let mut chars = word.chars();
    let first = chars.next()?;
    let digits = chars.as_str();
    let (ty, _) = LETTERS.into_iter().find(|(_, letter)| *letter == first)?;
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(|c| c.is_ascii_digit());
    if is_number { digits.parse().ok().map(|number| (ty, number)) } else { None }
}

pub(super) fn special_name(special: Special) -> &'static str {
    SPECIALS.into_iter().find(|(s, _)| *s == special).map_or("?", |(_, name)| name)
}

pub(super) fn special(word: &str) -> Option<Special> {
    SPECIALS.into_iter().find(|(_, name)| *name == word).map(|(special, _)| special)
}

/// Whether a name needs no quotes where it is used.
pub(super) fn is_plain(name: &str) -> bool {
    let looks_numeric = |word: &str| register(word).is_some() || word.starts_with("inf_") || word.starts_with("NaN_");
    oplus_dsl::names::is_name(name) && !WORDS.contains(&name) && !looks_numeric(name)
}

/// The names of parameters and arrays where they are used.
pub(super) enum Reference<'k> {
    /// By its name, quoted if that is not plain.
    Name(&'k str),
    /// By its index, as an earlier one has its name.
    Index,
}

impl Kernel {
    /// The name of the parameter of an index.
    pub(super) fn param_reference(&self, index: usize) -> Option<Reference<'_>> {
        let name = &self.params.get(index)?.name;
        let is_first = self.params[..index].iter().all(|p| p.name != *name);
        Some(if is_first { Reference::Name(name) } else { Reference::Index })
    }

    /// The name of the array of an index.
    pub(super) fn array_reference(&self, index: usize) -> Option<Reference<'_>> {
        let name = &self.shared.get(index)?.name;
        let is_first =
            self.params.iter().all(|p| p.name != *name) && self.shared[..index].iter().all(|s| s.name != *name);
        Some(if is_first { Reference::Name(name) } else { Reference::Index })
    }
}
