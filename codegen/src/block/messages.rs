//! Messages between blocks, as they are polled.

use crate::build::Builder;
use crate::tile::{Operand, PollEntry, Reg};

/// The words of memory that a message of so many words takes: one of several words starts at an even word.
pub(crate) fn padded(words: u32) -> u32 {
    if words > 1 { words.next_multiple_of(2) } else { words }
}

/// A message of so many words, to be polled at an index. A message that is not wanted counts as present.
pub(crate) fn awaited(b: &mut Builder, index: Operand, words: u32, wanted: Operand, tag: Operand) -> PollEntry {
    let missing = b.sub(tag, 1);
    let start = b.select(wanted, missing, tag);
    let values = (0..words).map(|_| b.var(Operand::u32(0))).collect();
    let tags = (0..words).map(|_| b.var(start)).collect();
    PollEntry { index, values, tags }
}

/// Whether a condition holds and all words with these tags are present.
pub(crate) fn are_present(b: &mut Builder, condition: Operand, tags: &[Reg], tag: Operand) -> Operand {
    tags.iter().fold(condition, |all, own| {
        let here = b.eq((*own).into(), tag);
        b.and(all, here)
    })
}
