//! Sums of products.

use pulp::Simd;

use crate::cpu::kernel::program::Term;

/// How many vectors of a register are added up at once, where it has as many.
const MANY: usize = 8;
const FEW: usize = 4;

macro_rules! sums {
    ($name:ident, $t:ty, $vector:ident, $slices:ident, $slices_mut:ident, $add:ident, $sub:ident, $mul:ident) => {
        /// See [`Number::sum`](super::number::Number::sum).
        #[inline(always)]
        pub(super) fn $name<S: Simd, const W: usize>(
            simd: S,
            all: &mut [[$t; W]],
            dst: usize,
            terms: &[Term],
            factors: &[[u32; 2]],
        ) {
            let vectors = W * size_of::<$t>() / size_of::<S::$vector>();
            let mut at = 0;
            while at + MANY <= vectors {
                some::<S, W, MANY>(simd, all, (dst, at), terms, factors);
                at += MANY;
            }
            while at + FEW <= vectors {
                some::<S, W, FEW>(simd, all, (dst, at), terms, factors);
                at += FEW;
            }
            for at in at..vectors {
                some::<S, W, 1>(simd, all, (dst, at), terms, factors);
            }

            /// Some vectors of the sum, from one of them on.
            #[inline(always)]
            fn some<S: Simd, const W: usize, const N: usize>(
                simd: S,
                all: &mut [[$t; W]],
                (dst, at): (usize, usize),
                terms: &[Term],
                factors: &[[u32; 2]],
            ) {
                let mut terms = terms.iter().zip(factors);
                let Some((first, factors)) = terms.next() else { return };
                let mut sum: [S::$vector; N] = match first.times {
                    None => load::<S, W, N>(at, &all[factors[0] as usize]),
                    Some(_) => product(simd, all, at, factors),
                };
                for (term, factors) in terms {
                    let addend: [S::$vector; N] = match term.times {
                        None => load::<S, W, N>(at, &all[factors[0] as usize]),
                        Some(_) => product(simd, all, at, factors),
                    };
                    for (sum, x) in sum.iter_mut().zip(&addend) {
                        *sum = if term.is_subtracted { simd.$sub(*sum, *x) } else { simd.$add(*sum, *x) };
                    }
                }
                let (vectors, _) = S::$slices_mut(&mut all[dst]);
                *vectors[at..].first_chunk_mut().expect("a register has all its vectors") = sum;
            }

            #[inline(always)]
            fn product<S: Simd, const W: usize, const N: usize>(
                simd: S,
                all: &[[$t; W]],
                at: usize,
                factors: &[u32; 2],
            ) -> [S::$vector; N] {
                let mut product: [S::$vector; N] = load::<S, W, N>(at, &all[factors[0] as usize]);
                let times: [S::$vector; N] = load::<S, W, N>(at, &all[factors[1] as usize]);
                for (x, y) in product.iter_mut().zip(&times) {
                    *x = simd.$mul(*x, *y);
                }
                product
            }

            #[inline(always)]
            fn load<S: Simd, const W: usize, const N: usize>(at: usize, register: &[$t; W]) -> [S::$vector; N] {
                let (vectors, _) = S::$slices(register);
                *vectors[at..].first_chunk().expect("a register has all its vectors")
            }
        }
    };
}

sums!(single, f32, f32s, as_simd_f32s, as_mut_simd_f32s, add_f32s, sub_f32s, mul_f32s);
sums!(double, f64, f64s, as_simd_f64s, as_mut_simd_f64s, add_f64s, sub_f64s, mul_f64s);
