//! Sums of products.

use pulp::Simd;

use super::file::Known;
use crate::cpu::kernel::program::Term;

/// How many vectors of a register are added up at once.
const VECTORS: usize = 8;

macro_rules! sums {
    ($name:ident, $t:ty, $vector:ident, $slices:ident, $slices_mut:ident, $add:ident, $sub:ident, $mul:ident) => {
        /// Adds up terms of registers.
        #[inline(always)]
        pub(super) fn $name<S: Simd, const W: usize>(
            simd: S,
            dst: &mut [$t; W],
            terms: &[Term],
            known: Known<'_, $t, W>,
        ) {
            let (dst, _) = S::$slices_mut(dst);
            let (whole, rest) = dst.as_chunks_mut::<VECTORS>();
            let done = whole.len() * VECTORS;
            for (k, dst) in whole.iter_mut().enumerate() {
                *dst = sum(simd, k * VECTORS, terms, known);
            }
            for (k, dst) in rest.iter_mut().enumerate() {
                [*dst] = sum(simd, done + k, terms, known);
            }

            /// Some vectors of the sum, from one of them on.
            #[inline(always)]
            fn sum<S: Simd, const W: usize, const N: usize>(
                simd: S,
                at: usize,
                terms: &[Term],
                known: Known<'_, $t, W>,
            ) -> [S::$vector; N] {
                let [first, rest @ ..] = terms else { unreachable!("a sum has terms") };
                let mut sum = term(simd, at, *first, known);
                for one in rest {
                    let addend: [S::$vector; N] = term(simd, at, *one, known);
                    for (sum, x) in sum.iter_mut().zip(&addend) {
                        *sum = if one.is_subtracted { simd.$sub(*sum, *x) } else { simd.$add(*sum, *x) };
                    }
                }
                sum
            }

            /// A term without its sign.
            #[inline(always)]
            fn term<S: Simd, const W: usize, const N: usize>(
                simd: S,
                at: usize,
                term: Term,
                known: Known<'_, $t, W>,
            ) -> [S::$vector; N] {
                let mut all: [S::$vector; N] = load::<S, W, N>(at, known.at(term.factor));
                if let Some(times) = term.times {
                    let times: [S::$vector; N] = load::<S, W, N>(at, known.at(times));
                    for (x, y) in all.iter_mut().zip(&times) {
                        *x = simd.$mul(*x, *y);
                    }
                }
                all
            }

            #[inline(always)]
            fn load<S: Simd, const W: usize, const N: usize>(at: usize, register: &[$t; W]) -> [S::$vector; N] {
                let (all, _) = S::$slices(register);
                *all[at..].first_chunk().expect("a register has all its vectors")
            }
        }
    };
}

sums!(single, f32, f32s, as_simd_f32s, as_mut_simd_f32s, add_f32s, sub_f32s, mul_f32s);
sums!(double, f64, f64s, as_simd_f64s, as_mut_simd_f64s, add_f64s, sub_f64s, mul_f64s);
