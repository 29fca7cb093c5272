//! The text that is learned.

/// Random pieces of a text: `batch` sequences of `times` bytes, and the bytes that follow each of them.
pub(super) fn pieces(text: &[u8], batch: usize, times: usize, random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    let starts: Vec<usize> = (0..batch).map(|_| random.usize(..text.len() - times)).collect();
    let from = |offset: usize| starts.iter().flat_map(|at| &text[at + offset..][..times]).copied().collect();
    (from(0), from(1))
}
