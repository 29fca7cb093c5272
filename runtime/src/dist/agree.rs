//! Agreement: ranks compare what they are about to do.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use super::Group;
use crate::{Error, Tensor};

/// The sizes of the shards of all ranks.
pub(super) type Sizes = Arc<Vec<usize>>;

/// The calls that ranks have agreed to make, and the sizes of their shards.
pub(super) type Agreements = HashSet<(Intent, Sizes)>;

/// The call that a rank is about to make, as hashes that must be equal on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Intent {
    /// The program and the axis.
    pub(super) program: u64,
    /// The sizes of the axes that are not divided, and into how many parts their rows are.
    pub(super) sizes: u64,
    /// The element type of the call, the tensors that are given and the outputs that are wanted.
    pub(super) tensors: u64,
}

impl Group {
    /// The sizes of the shards of all ranks, after all have shown that they are about to do the same. Where all know the sizes,
    /// they show it once.
    pub(super) fn agree(&self, intent: Intent, own: usize) -> Result<Sizes, Error> {
        let lock = || self.agreements().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.shards().filter(|known| lock().contains(&(intent, (*known).clone()))) {
            return Ok(known.clone());
        }
        let given = self.shards().map_or(0, |sizes| hash(&format!("{sizes:?}")));
        let words = [intent.program, intent.sizes, intent.tensors, given, own as u64].map(|word| word as i64);
        let all = self.all_gather(&Tensor::from_slice(&words, &[words.len()])?)?.to_vec::<i64>()?;
        let what = [
            "the program",
            "the sizes of axes that are not divided",
            "element types and the tensors given",
            "the sizes of shards that they were told",
        ];
        for (other, theirs) in all.chunks(words.len()).enumerate() {
            let differs = words.iter().zip(theirs).zip(what).find(|((own, other), _)| own != other);
            if let Some((_, what)) = differs {
                return Err(Error::RanksDisagree { rank: self.rank(), other, what: what.into() });
            }
        }
        let sizes: Sizes = Arc::new(all.chunks(words.len()).map(|words| words[4] as usize).collect());
        if let Some(known) = self.shards() {
            self.check_sizes(known, &sizes)?;
        }
        lock().insert((intent, sizes.clone()));
        Ok(sizes)
    }

    /// Checks that the shards have the sizes that the ranks were told.
    fn check_sizes(&self, told: &[usize], found: &[usize]) -> Result<(), Error> {
        let differs = told.iter().zip(found).position(|(told, found)| told != found);
        differs.map_or(Ok(()), |other| {
            let what = format!("the size of shard {other}: {} was said, it is {}", told[other], found[other]);
            Err(Error::RanksDisagree { rank: self.rank(), other, what })
        })
    }
}

/// A hash of words that every machine agrees on.
pub(super) fn hash(text: &str) -> u64 {
    let hash = blake3::hash(text.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap_or_default())
}
