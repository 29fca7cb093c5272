//! A simulator of exchanges: which bytes cross which link in which step, without a network.

use super::Exchanges;

/// A link between neighbouring ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per microsecond, in each direction.
    pub bytes_per_micro: f64,
    /// Microseconds from the start of a message to its arrival, whatever its size.
    pub latency_micros: f64,
}

impl Link {
    /// NVLink of an H100: 450 GB/s in each direction, 2 µs (NVIDIA, "H100 Tensor Core GPU architecture", 2022).
    pub const NVLINK: Link = Link { bytes_per_micro: 450e3, latency_micros: 2.0 };
    /// InfiniBand NDR, one adapter for each GPU: 50 GB/s, 5 µs.
    pub const INFINIBAND: Link = Link { bytes_per_micro: 50e3, latency_micros: 5.0 };
}

/// An estimate of the time that exchanges take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Steps in which neighbours exchange, one after the other.
    pub steps: u64,
    /// Bytes that the busiest link carries in one direction.
    pub bytes: u64,
    /// Microseconds of all steps.
    pub micros: f64,
}

impl Exchanges {
    /// Estimates the exchanges of a call on a ring of such links: all messages of a phase are collected at once.
    pub fn cost(&self, link: Link) -> Cost {
        let phases = (0..self.phases).map(|phase| {
            let sent = self.messages.iter().filter(|message| message.phase == phase);
            all_gather(self.ranks, sent.map(|message| message.bytes).sum(), link)
        });
        phases.fold(Cost::default(), Cost::then)
    }
}

impl Cost {
    /// One cost after the other.
    fn then(self, next: Cost) -> Cost {
        Cost { steps: self.steps + next.steps, bytes: self.bytes + next.bytes, micros: self.micros + next.micros }
    }
}

/// Gathers one message of each rank on a ring: in every step each rank passes on what it received in the one before, beginning
/// with its own, until every rank has all.
pub fn all_gather(ranks: usize, bytes: u64, link: Link) -> Cost {
    let mut held: Vec<Vec<bool>> = (0..ranks).map(|rank| (0..ranks).map(|of| of == rank).collect()).collect();
    let mut passing: Vec<usize> = (0..ranks).collect();
    let mut cost = Cost::default();
    while bytes > 0 && held.iter().any(|held| held.iter().any(|is_held| !is_held)) {
        let arriving: Vec<usize> = (0..ranks).map(|rank| passing[(rank + ranks - 1) % ranks]).collect();
        held.iter_mut().zip(&arriving).for_each(|(held, message)| held[*message] = true);
        passing = arriving;
        cost = cost.then(step(bytes, link));
    }
    cost
}

/// Passes the keys and values of every rank to all others, as attention on a ring does, one shard in each step.
pub fn ring(ranks: usize, bytes_of_shard: u64, link: Link) -> Cost {
    (1..ranks).fold(Cost::default(), |cost, _| cost.then(step(bytes_of_shard, link)))
}

fn step(bytes: u64, link: Link) -> Cost {
    Cost { steps: 1, bytes, micros: link.latency_micros + bytes as f64 / link.bytes_per_micro }
}
