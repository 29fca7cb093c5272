//! Training on several ranks, each of which has a part of the times of every sequence.

use std::ops::Range;

use oplus::dist::Group;
use oplus::{Device, Error, Tensor};

use crate::kernels::{Total, total};

/// One of the ranks.
pub(crate) struct Ranks {
    /// For tensors whose times are divided.
    pub(crate) times: Group,
    /// For tensors of a row for every time of every sequence.
    pub(crate) rows: Group,
    part: Range<usize>,
    whole: usize,
}

impl Ranks {
    /// A rank of a group that trains on `batch` sequences of `whole` times.
    pub(crate) fn new(group: &Group, batch: usize, whole: usize) -> Result<Ranks, Error> {
        let size = group.size();
        let part = |rank: usize| whole * rank / size..whole * (rank + 1) / size;
        let sizes: Vec<usize> = (0..size).map(|rank| part(rank).len()).collect();
        let rows: Vec<usize> = sizes.iter().map(|times| batch * times).collect();
        let (times, rows) = (group.with_shards(&sizes)?, group.with_shards(&rows)?);
        Ok(Ranks { times, rows, part: part(group.rank()), whole })
    }

    /// This rank's times of sequences that stand one after the other.
    pub(crate) fn part(&self, bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(self.whole).flat_map(|sequence| &sequence[self.part.clone()]).copied().collect()
    }

    /// Puts the sums over all ranks, in their order, in the place of this rank's terms.
    pub(crate) fn add_up(&self, terms: Vec<&mut Tensor>) -> Result<(), Error> {
        let flat = |tensor: &&mut Tensor| tensor.contiguous()?.reshape(&[tensor.len()]);
        let own = terms.iter().map(flat).collect::<Result<Vec<_>, Error>>()?;
        let all = self.times.all_gather_many(&own.iter().collect::<Vec<_>>())?;
        for (term, parts) in terms.into_iter().zip(all) {
            let sum = total(Total { parts })?.y.reshape(term.shape())?;
            *term = sum;
        }
        Ok(())
    }
}

/// The ranks of this process, one for each GPU, or that many on the CPU.
pub(crate) fn groups(gpus: Option<usize>, on_cpu: Option<usize>) -> Result<Vec<(Group, Device)>, Error> {
    let Some(gpus) = gpus else {
        return Ok(Group::threads(on_cpu.unwrap_or(1)).into_iter().map(|group| (group, Device::Cpu)).collect());
    };
    let devices = (0..gpus).map(Device::cuda).collect::<Result<Vec<_>, _>>()?;
    Ok(Group::nccl_devices(&devices)?.into_iter().zip(devices).collect())
}
