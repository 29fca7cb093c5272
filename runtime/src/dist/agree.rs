//! Agreement: at their first call, ranks compare what they are about to do.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::Group;
use crate::{Error, Tensor};

/// The sizes of all ranks' shards, by what a rank was about to do and the size of its own shard.
pub(super) type Agreements = HashMap<(Intent, usize), Arc<Vec<usize>>>;

/// What a rank is about to do, as hashes that every rank must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Intent {
    /// The program and the axis.
    pub(super) program: u64,
    /// The sizes of the axes that are not divided.
    pub(super) sizes: u64,
    /// The element type of the call, the tensors that are given and the outputs that are wanted.
    pub(super) tensors: u64,
}

impl Group {
    /// The sizes of the shards of all ranks, after all have shown that they are about to do the same.
    pub(super) fn agree(&self, intent: Intent, own: usize) -> Result<Arc<Vec<usize>>, Error> {
        let lock = || self.agreements().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&(intent, own)) {
            return Ok(known.clone());
        }
        let words = [intent.program, intent.sizes, intent.tensors, own as u64].map(|word| word as i64);
        let all = self.all_gather(&Tensor::from_slice(&words, &[words.len()])?)?.to_vec::<i64>()?;
        for (other, theirs) in all.chunks(words.len()).enumerate() {
            let what = ["the program", "the sizes of axes that are not divided", "element types and the tensors given"];
            let differs = words.iter().zip(theirs).zip(what).find(|((own, other), _)| own != other);
            if let Some((_, what)) = differs {
                return Err(Error::RanksDisagree { rank: self.rank(), other, what: what.into() });
            }
        }
        let sizes: Arc<Vec<usize>> = Arc::new(all.chunks(words.len()).map(|words| words[3] as usize).collect());
        lock().insert((intent, own), sizes.clone());
        Ok(sizes)
    }
}

/// A hash of words that every machine agrees on.
pub(super) fn hash(text: &str) -> u64 {
    let hash = blake3::hash(text.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap_or_default())
}
