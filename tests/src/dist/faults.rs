//! Faults that are made on purpose among ranks: the error must be the one that is meant, and come in time.

use std::thread;
use std::time::{Duration, Instant};

use oplus::{Error, Tensor, kernels};

use super::Line;
use super::member::{Member, Print};

/// How long the ranks of [`Member::fragile`] wait for each other.
pub(super) const SHORT: Duration = Duration::from_secs(3);

impl Member {
    /// Ranks that call different kernels, and a rank that is silent.
    pub(super) fn faults(&self, print: Print<'_>) -> Result<bool, Error> {
        if self.all.size() < 2 {
            return Ok(true);
        }
        let disagreement = self.disagreement()?;
        let loss = self.loss()?;
        let right = [("ranks that disagree", disagreement), ("a lost rank", loss)].map(|(name, found)| {
            let (case, device) = (name.to_owned(), self.name());
            let right = found.is_none();
            let line = Line { case, kind: "check", ranks: self.all.size(), device, reason: found, ..Line::default() };
            self.print(&Line { same_bits: Some(right), ..line }, print);
            right
        });
        Ok(right.into_iter().all(|right| right))
    }

    /// Checks the error of ranks that call different kernels; the complaint, if there is one.
    fn disagreement(&self) -> Result<Option<String>, Error> {
        let x = Tensor::full(0.5_f32, &[2, 3], &self.device)?;
        let result = match self.fragile.rank() {
            0 => kernels::cumsum::kernel().call_sharded(&self.fragile, "T", &[Some(&x)]),
            _ => kernels::affine::kernel().call_sharded(&self.fragile, "T", &[Some(&x), Some(&x), None]),
        };
        self.verdict(matches!(result, Err(Error::RanksDisagree { .. })), format!("{:?}", result.map(drop)))
    }

    /// Checks the error after a rank has become silent; the complaint, if there is one.
    fn loss(&self) -> Result<Option<String>, Error> {
        let x = Tensor::full(0.5_f32, &[2, 3], &self.device)?;
        let (start, is_silent) = (Instant::now(), self.fragile.rank() + 1 == self.fragile.size());
        if is_silent {
            thread::sleep(2 * SHORT);
            return self.verdict(true, String::new());
        }
        let lost = |error: &Error| matches!(error, Error::LostRank { .. } | Error::LostRanks { .. });
        let result = self.fragile.send_receive(&x, self.fragile.size() - 1, self.fragile.size() - 1);
        let result = result.and_then(|tensor| tensor.to_vec::<f32>());
        let again = self.fragile.all_gather(&x).map(drop);
        let right = result.as_ref().is_err_and(lost) && again.as_ref().is_err_and(lost);
        let took = start.elapsed();
        self.verdict(right && took < 2 * SHORT, format!("{result:?}, then {again:?}, after {took:?}"))
    }

    /// Nothing if all ranks have found what they should.
    fn verdict(&self, right: bool, found: String) -> Result<Option<String>, Error> {
        let all = self.gathered(f64::from(u8::from(right)))?;
        let wrong = all.iter().position(|right| *right == 0.0);
        let of = |rank: usize| if rank == self.all.rank() { found } else { format!("rank {rank} has another error") };
        Ok(wrong.map(of))
    }
}
