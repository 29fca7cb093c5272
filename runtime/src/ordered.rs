//! Order: calls that give the same bits however a sequence is divided among them.

use std::cell::Cell;

use crate::guard::Guard;

thread_local! {
    /// How many orders are alive on this thread.
    static ORDERS: Cell<usize> = const { Cell::new(0) };
}

/// A guard of [`ordered`]: while it is alive, calls that this thread makes, and gradients that it takes, combine in order:
/// every scan and every reduction takes one element after the other, from one end to the other, with the operations of the
/// program, each rounded once, and no others.
///
/// A sequence then has the same outputs and states, to the bit, when it is read at once, in chunks of any lengths that each start
/// from the last state of the one before, or step by step with `kernel::step` (where the operator's `combine` is the step: the
/// fields that come out are those that go in). This also holds for the gradients of all that has a time, and of the state. The
/// gradients of what all times share are sums over time, which chunks add up in another order, and gradients of calls in bf16 and
/// f16 may read outputs, rounded, where a chunk has its first state. It holds on both devices; between the CPU and a GPU
/// elementary functions may differ in the last place.
///
/// Two kinds of recurrences have gradients that agree within rounding only. In one, a field of the state feeds another and is
/// not fed by it, as the velocity v feeds the position p where `combine` has p + v·n: v̄ gets what comes back from p and from
/// later v. The whole adds the first of these to the cotangent of the same time before it adds the second; a chunk is given
/// both as one number, and adds the cotangent of its last time to that. (Fields that feed each other, as those of complex
/// numbers and matrices, are one sum in both, and so are fields that feed nothing but themselves.) In the other, the states
/// before and the states behind each element are both read: the state's cotangent is then the sum of two scans.
///
/// Without it, a whole and its chunks agree within rounding, and to the bit where chunks begin at certain borders. On the
/// CPU scans have them at every 16,384th time, counted from the start of the sequence in both directions: outputs, states
/// and the gradients of all that has a time, and of the state, are those of the whole, whatever the number of threads.
/// (Within rounding there: gradients of exclusive scans whose first state is given, of states one of whose fields feeds
/// another and is not fed by it, and where only the last state has a cotangent.) On a GPU borders are where the tiles of a
/// schedule begin that gives out the state with which it goes on: rows at multiples of a tile, walks of columns at every
/// time, selective scans that save their states ([`record`](crate::record())) and walk time in one piece at multiples of 32
/// times. Where a plan takes look-back, rings of columns, chunkwise or flash, or other schedules for other lengths, the
/// state that a chunk gives out has been combined in another order than inside the whole. `kernel::explain` names the
/// schedule of a call.
///
/// Orders differ most where decays are above 1: the product of many may overflow, while every state is finite. On the CPU
/// that costs no state, ordered or not: a stretch of time whose product loses a finite state is taken step by step. (A
/// state that has decayed below 2⁻¹²⁶ of what it was at the start of such a stretch, at most 16,384 times long, counts as
/// forgotten in `f32`, even if it would grow again within the stretch.) On a GPU ordered calls keep such states too; others
/// give no number where the product of a tile's or a segment's decays is not finite.
///
/// Order costs speed, and memory where a program sums its states away (Mamba, attention with decays): on a GPU they are
/// stored. Ordered calls have kernels of their own; `oplus bake --ordered` makes them ahead of time.
///
/// ```
/// use oplus::Tensor;
/// use oplus::models::{EmaConstant, ema_constant};
///
/// let x = Tensor::from_vec((0..1000).map(|t| (t as f32).sin()).collect(), &[1, 1000])?;
/// let alpha = Tensor::from_slice(&[0.1_f32], &[1])?;
/// let ordered = oplus::ordered();
/// let prefill = ema_constant(EmaConstant { x: x.clone(), alpha: alpha.clone(), y0: None })?;
/// let mut state = Tensor::from_slice(&[0.0_f32], &[1])?;
/// for t in 0..1000 {
///     let x = x.slice(1, t..t + 1)?.reshape(&[1])?;
///     let step = ema_constant::Step { x, alpha: alpha.clone(), y0: Some(state) };
///     state = ema_constant::step(step)?.y_last;
/// }
/// assert_eq!(state.to_vec::<f32>()?, prefill.y_last.to_vec::<f32>()?);
/// # drop(ordered);
/// # Ok::<(), oplus::Error>(())
/// ```
#[must_use = "calls are ordered until this is dropped"]
#[derive(Debug)]
pub struct Ordered(#[expect(dead_code, reason = "it is dropped")] Guard);

/// Orders the calls of this thread from now on.
pub fn ordered() -> Ordered {
    Ordered(Guard::new(&ORDERS))
}

/// Whether calls of this thread are ordered.
pub(crate) fn is_ordered() -> bool {
    ORDERS.get() > 0
}
