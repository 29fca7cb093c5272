//! Kernels of one's own, by `scan!` and at run time.

use std::sync::Arc;

use candle_core::{Result, Tensor, Var};
use oplus_candle::{Error, call};

use crate::{Random, assert_close, device};

oplus_candle::scan! {
    /// Peaks that sink: first by d, then overtaken by h.
    pub op LeakyMax(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    /// h[t] = max(h[t−1] − d[t], x[t]), with the state in and out.
    pub fn peaks(x: [B, T], d: [B, T], h0: state[B] = -inf) -> (h: [B, T], h_last: state[B]) {
        h = scan(T, LeakyMax(d, x), init = (h: h0)).h;
        h_last = last(T, h);
    }
}

fn peaks_by_steps(x: &Tensor, d: &Tensor) -> Result<Tensor> {
    let mut all: Vec<Tensor> = vec![];
    for t in 0..x.dim(1)? {
        let (x, d) = (x.narrow(1, t, 1)?, d.narrow(1, t, 1)?);
        all.push(match all.last() {
            Some(h) => (h - d)?.maximum(&x)?,
            None => x,
        });
    }
    Tensor::cat(&all, 1)
}

#[test]
fn an_operator_of_ones_own_is_differentiated() -> Result<()> {
    let mut random = Random::new(1);
    let (x, d) = (random.var(&[3, 11])?, random.var(&[3, 11])?);
    let ours = peaks(Peaks { x: x.as_tensor().clone(), d: d.as_tensor().clone(), h0: None })?;
    let theirs = peaks_by_steps(&x, &d)?;
    assert_close("h", &ours.h, &theirs, 1e-12);
    let (ours, theirs) = (ours.h.sqr()?.sum_all()?.backward()?, theirs.sqr()?.sum_all()?.backward()?);
    assert_close("x", ours.get(&x).unwrap(), theirs.get(&x).unwrap(), 1e-12);
    assert_close("d", ours.get(&d).unwrap(), theirs.get(&d).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn single_steps_give_what_the_whole_gives() -> Result<()> {
    let mut random = Random::new(2);
    let (x, d) = (random.tensor(&[2, 4])?, random.tensor(&[2, 4])?);
    let whole = peaks(Peaks { x: x.clone(), d: d.clone(), h0: None })?;
    let mut state = None;
    for t in 0..4 {
        let at = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1);
        let out = peaks::step(peaks::Step { x: at(&x)?, d: at(&d)?, h0: state })?;
        assert_close("h", &out.h, &at(&whole.h)?, 1e-12);
        state = Some(out.h_last);
    }
    assert_close("h_last", &state.expect("four steps"), &whole.h_last, 1e-12);
    Ok(())
}

#[test]
fn a_kernel_made_at_run_time_is_shared() -> Result<()> {
    let kernel = Arc::new(oplus_candle::oplus::Kernel::new("peaks", peaks::TEXT));
    let (x, d) = (Var::new(&[[3.0_f32, 0.0]], device())?, Var::new(&[[0.5_f32, 0.5]], device())?);
    let outputs = call(kernel, &[Some(&x), Some(&d), None])?;
    assert_eq!(outputs[0].to_vec2::<f32>()?, [[3.0, 2.5]]);
    assert_eq!(outputs[0].backward()?.get(&d).unwrap().to_vec2::<f32>()?, [[0.0, -1.0]]);
    Ok(())
}

#[test]
fn plans_are_explained() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let explanation = peaks::explain(&oplus_candle::oplus::Shapes::new().axis("B", 1).axis("T", 100))?;
    assert!(explanation.to_string().contains("peaks"));
    let _: fn(Peaks) -> std::result::Result<PeaksOutput, Error> = peaks;
    Ok(())
}
