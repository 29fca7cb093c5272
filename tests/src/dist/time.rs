//! Times of one rank and of all, with as many tokens each and with as many in all.

use std::time::Instant;

use oplus::Error;
use oplus::dist::Group;

use super::member::{Member, Print};
use super::shard::Shard;
use super::{Case, Line, Settings};

/// How long one measurement lasts at least, in milliseconds.
const LONG_ENOUGH: f64 = 20.0;

impl Member {
    /// Times a case on one rank and on all, with that many tokens a rank.
    pub(super) fn time(&self, case: &Case, tokens: usize, settings: &Settings, print: Print<'_>) -> Result<(), Error> {
        let (ranks, runs) = (self.all.size(), settings.runs);
        let small = self.measured(case, tokens, runs, None)?;
        let large = self.measured(case, tokens * ranks, runs, None)?;
        for (tokens, times) in [(tokens, small), (tokens * ranks, large)] {
            let [forward, both] = times;
            let line =
                Line { ranks: 1, forward_ms: Some(forward), both_ms: Some(both), ..self.line(case, "one", tokens) };
            self.print(&Line { runs: Some(runs), ..line }, print);
        }
        let group = self.all.with_shards(&vec![tokens; ranks])?;
        let parts = group.with_parts(settings.parts);
        let ways = [("all", Some(&group)), ("parts", (settings.parts > 1).then_some(&parts))];
        for (kind, group) in ways.into_iter().filter(|(_, group)| group.is_some()) {
            let all = self.measured(case, tokens, runs, group)?;
            let weak = [small[0] / all[0], small[1] / all[1]];
            let strong = [large[0] / all[0], large[1] / all[1]].map(|gain| gain / ranks as f64);
            let line =
                Line { forward_ms: Some(all[0]), both_ms: Some(all[1]), ..self.line(case, kind, tokens * ranks) };
            self.print(&Line { runs: Some(runs), weak: Some(weak), strong: Some(strong), ..line }, print);
        }
        Ok(())
    }

    /// Milliseconds of a forward call, and of one with its gradient: of the slowest rank, in the fastest of some runs. Without
    /// a group only the first rank works.
    fn measured(&self, case: &Case, tokens: usize, runs: usize, group: Option<&Group>) -> Result<[f64; 2], Error> {
        let works = group.is_some() || self.all.rank() == 0;
        let shard = if works { Some(Shard::filled(case, tokens, &self.device)?) } else { None };
        let called = |shard: &Shard<'_>| shard.forward(group);
        let forward = || shard.as_ref().map_or(Ok(()), |shard| called(shard).map(drop));
        let both = || {
            let with_gradient = |shard: &Shard<'_>| shard.backward(&called(shard)?.1).map(drop);
            shard.as_ref().map_or(Ok(()), with_gradient)
        };
        Ok([self.clock(runs, works.then_some(&forward))?, self.clock(runs, works.then_some(&both))?])
    }

    /// Milliseconds of some work of this rank, if it has any; all ranks take part.
    pub(super) fn clock(&self, runs: usize, work: Option<&dyn Fn() -> Result<(), Error>>) -> Result<f64, Error> {
        let timed = |times: usize| -> Result<f64, Error> {
            self.gathered(0.0)?;
            let start = Instant::now();
            if let Some(work) = work {
                (0..times).try_for_each(|_| work())?;
                self.device.synchronize()?;
            }
            let own = start.elapsed().as_secs_f64() * 1e3 / times as f64;
            Ok(self.gathered(own)?.into_iter().fold(0.0, f64::max))
        };
        // The first call compiles, the second warms up, the third says how many make a measurement.
        timed(1)?;
        timed(1)?;
        let times = (LONG_ENOUGH / timed(1)?).ceil().clamp(1.0, 100.0) as usize;
        (0..runs).try_fold(f64::INFINITY, |fastest, _| Ok(timed(times)?.min(fastest)))
    }
}
