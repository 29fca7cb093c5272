//! The ring of causal attention: checked against one device, and timed on one and on all.

use oplus::dist::{Attended, Attention, Mask, Rows, attention};
use oplus::{Error, Tensor, models};

use super::Line;
use super::member::{Member, Print, Settings, are_same, difference, worse};
use crate::check::data::download;

/// Sizes: one sequence, heads, channels.
const HEADS: usize = 2;
const CHANNELS: usize = 64;
/// Rows of a check; a prime number.
const CHECKED: usize = 1021;
/// Where the rows are in q and o, and in k and v.
const M: usize = 3;
const N: usize = 2;

/// Random queries, keys and values of that many rows, on the CPU.
fn inputs(rows: usize) -> Result<Attention, Error> {
    let mut rng = fastrand::Rng::with_seed(0xa77);
    let mut random = |shape: &[usize]| {
        let numbers = std::iter::repeat_with(|| 2.0 * rng.f32() - 1.0).take(shape.iter().product()).collect();
        Tensor::from_vec::<f32>(numbers, shape)
    };
    let (q, k) = ([1, HEADS, 1, rows, CHANNELS], [1, HEADS, rows, CHANNELS]);
    Ok(Attention { q: random(&q)?, k: random(&k)?, v: random(&k)? })
}

impl Member {
    /// Checks the ring, and times it with the fewest tokens of all measurements.
    pub(super) fn ring(&self, settings: &Settings, print: Print<'_>) -> Result<bool, Error> {
        if !"ring".contains(&settings.only) {
            return Ok(true);
        }
        let line = self.check_ring(settings.bits)?;
        self.print(&line, print);
        if let Some(tokens) = settings.tokens.iter().min() {
            self.time_ring(*tokens, settings.runs, print)?;
        }
        Ok(line.is_right())
    }

    fn ring_line(&self, kind: &'static str, tokens: usize) -> Line {
        Line { case: "ring".into(), kind, ranks: self.all.size(), tokens, device: self.name(), ..Line::default() }
    }

    /// A rank's rows on its device.
    fn dealt(&self, whole: &Attention, rows: &Rows) -> Result<Attention, Error> {
        let part = |tensor: &Tensor, axis| rows.deal(tensor, axis, self.all.rank())?.to_device(&self.device);
        Ok(Attention { q: part(&whole.q, M)?, k: part(&whole.k, N)?, v: part(&whole.v, N)? })
    }

    fn check_ring(&self, runs: usize) -> Result<Line, Error> {
        let (whole, rows) = (inputs(CHECKED)?, Rows::zigzag(CHECKED, self.all.size()));
        let own = self.dealt(&whole, &rows)?;
        let results = || -> Result<[Tensor; 4], Error> {
            let made = attention(&self.all, &rows, Mask::Causal, own.clone())?;
            let Attention { q, k, v } = made.backward(Some(&own.q), None)?;
            Ok([made.o, q, k, v])
        };
        let first = results()?;
        let on_device = |tensor: &Tensor| tensor.to_device(&self.device);
        let (q, k, v) = (on_device(&whole.q)?, on_device(&whole.k)?, on_device(&whole.v)?);
        let kernel = models::attention_causal::kernel();
        let (outputs, call) = kernel.call(&[Some(&q), Some(&k), Some(&v)])?;
        let gradients = kernel.backward(&call, &[Some(&q), None])?;
        let (mut error, mut same_bits) = (0.0_f64, true);
        let wanted = [Some(&outputs[0])].into_iter().chain(gradients.iter().map(Option::as_ref)).flatten();
        for ((found, wanted), axis) in first.iter().zip(wanted).zip([M, M, N, N]) {
            let wanted = rows.deal(wanted, axis, self.all.rank())?;
            error = worse(error, difference(&download(found)?, &download(&wanted)?));
        }
        for _ in 1..runs {
            let again = results()?;
            for pair in first.iter().zip(&again) {
                same_bits &= are_same(pair)?;
            }
        }
        let (error, same_bits) = self.agreed(error, same_bits)?;
        let line = self.ring_line("check", CHECKED);
        Ok(Line { error: Some(error), same_bits: Some(same_bits), runs: Some(runs), ..line })
    }

    /// Times all rows on one rank, and dealt to all, with that many rows each.
    fn time_ring(&self, tokens: usize, runs: usize, print: Print<'_>) -> Result<(), Error> {
        let ranks = self.all.size();
        let (whole, rows) = (inputs(tokens * ranks)?, Rows::zigzag(tokens * ranks, ranks));
        let own = self.dealt(&whole, &rows)?;
        let on_device = |tensor: &Tensor| tensor.to_device(&self.device);
        let inputs = Attention { q: on_device(&whole.q)?, k: on_device(&whole.k)?, v: on_device(&whole.v)? };
        let alone = || {
            let Attention { q, k, v } = &inputs;
            models::attention_causal::kernel().call(&[Some(q), Some(k), Some(v)])
        };
        let both_alone = || {
            let (_, call) = alone()?;
            models::attention_causal::kernel().backward(&call, &[Some(&inputs.q), None]).map(drop)
        };
        let is_first = self.all.rank() == 0;
        let one = [
            self.clock(runs, is_first.then_some(&|| alone().map(drop)))?,
            self.clock(runs, is_first.then_some(&both_alone))?,
        ];
        let line = Line { ranks: 1, runs: Some(runs), ..self.ring_line("one", tokens * ranks) };
        self.print(&Line { forward_ms: Some(one[0]), both_ms: Some(one[1]), ..line }, print);
        let ring = || attention(&self.all, &rows, Mask::Causal, own.clone());
        let both = || ring().and_then(|made: Attended| made.backward(Some(&own.q), None)).map(drop);
        let all = [self.clock(runs, Some(&|| ring().map(drop)))?, self.clock(runs, Some(&both))?];
        let strong = Some([one[0] / all[0], one[1] / all[1]].map(|gain| gain / ranks as f64));
        let line = Line { runs: Some(runs), strong, ..self.ring_line("all", tokens * ranks) };
        self.print(&Line { forward_ms: Some(all[0]), both_ms: Some(all[1]), ..line }, print);
        Ok(())
    }
}
