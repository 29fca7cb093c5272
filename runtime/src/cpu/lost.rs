//! States that combined elements lose although single steps keep them.
//!
//! A state goes through a stretch of elements in two ways: step by step, or by one combination with the stretch's total.
//! Both are equal in exact arithmetic, but a total may overflow where no state does: a product of decays above 1 is
//! infinite, the state that it meets is 0, and 0·∞ is not a number. So a state that was finite before a stretch and is
//! not finite behind it is *lost*, and what has combined it takes the stretch step by step instead. Only the lost
//! states are replaced; the others keep their bits.

use oplus_dsl::ir::Literal;

use super::kernel::Kernel;
use super::values::{Scalar, Values, with_type};

/// Whether a combination of elements with a state has lost it.
#[inline(always)]
pub(super) fn is_lost<T: Scalar>(before: T, after: T) -> bool {
    before.is_finite() && !after.is_finite()
}

/// Whether a number stands for a state: it is finite, or it is the identity, which may be infinite.
#[inline(always)]
pub(super) fn is_state<T: Scalar>(x: T, identity: T) -> bool {
    x.is_finite() || x == identity
}

/// The fields that a kernel keeps, each with its identity.
pub(super) fn kept(kernel: &Kernel) -> impl Iterator<Item = (usize, Literal)> {
    let fields = kernel.fields.iter().enumerate().filter(|(field, _)| kernel.next[*field].is_some());
    fields.map(|(field, (_, identity))| (field, *identity))
}

/// Whether any number of the kernel's fields is no state.
pub(super) fn has_others(kernel: &Kernel, values: &[Values]) -> bool {
    kept(kernel).any(|(field, identity)| {
        with_type!(values[field].ty(), T => {
            let identity = T::of(identity);
            !values[field].from(0).of::<T>().iter().all(|x| is_state(*x, identity))
        })
    })
}

/// Whether the kernel's combination of states with what comes next has lost any.
pub(super) fn any(kernel: &Kernel, before: &[Values], after: &[Values]) -> bool {
    kept(kernel).any(|(field, identity)| {
        with_type!(after[field].ty(), T => {
            let [before, after] = [before, after].map(|states| states[field].from(0).of::<T>());
            let (identity, mut pairs) = (T::of(identity), before.iter().zip(after));
            pairs.any(|(before, after)| is_state(*before, identity) && !is_state(*after, identity))
        })
    })
}

/// Puts the states that steps have found in place of those that are lost.
pub(super) fn replace(kernel: &Kernel, before: &[Values], after: &mut [Values], stepped: &[Values]) {
    for (field, identity) in kept(kernel) {
        with_type!(after[field].ty(), T => {
            let [before, stepped] = [before, stepped].map(|states| states[field].from(0).of::<T>());
            let identity = T::of(identity);
            for ((before, after), stepped) in before.iter().zip(after[field].all::<T>()).zip(stepped) {
                if is_state(*before, identity) && !is_state(*after, identity) {
                    *after = *stepped;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Ahead;

    /// A kernel of one field with an identity.
    fn kernel(identity: f64) -> Kernel {
        let max = oplus_dsl::testing::operators::max(oplus_dsl::Ty::F64);
        let mut kernel = Kernel::new(&max, 1, Ahead::Nothing);
        kernel.fields[0].1 = Literal::Float(identity);
        kernel
    }

    #[test]
    fn only_states_that_were_there_are_lost() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let before = [Values::F64(vec![0.0, 1.0, inf, nan, -inf, 2.0])];
        let after = [Values::F64(vec![nan, -inf, nan, inf, inf, 3.0])];
        let stepped = [Values::F64(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])];
        let found = |identity: f64| {
            let mut found = Values::copies(&after).unwrap();
            replace(&kernel(identity), &before, &mut found, &stepped);
            let [Values::F64(found)] = &found[..] else { unreachable!() };
            found.iter().map(|x| if x.is_nan() { 0.0 } else { *x }).collect::<Vec<f64>>()
        };
        assert!(any(&kernel(0.0), &before, &after) && !any(&kernel(0.0), &after, &after));
        assert!(has_others(&kernel(0.0), &after) && !has_others(&kernel(0.0), &stepped));
        assert_eq!(found(0.0), [1.0, 2.0, 0.0, inf, inf, 3.0]);
        assert_eq!(found(-inf), [1.0, -inf, 0.0, inf, 5.0, 3.0]);
    }
}
