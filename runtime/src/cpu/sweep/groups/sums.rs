//! Sums of products: what most nodes of operators on vectors and matrices are parts of.
//!
//! A chain of additions and subtractions whose intermediate values nothing else reads is one instruction. Its accumulator stays in
//! registers of the processor. Every product and every addition is rounded, in the order of the chain.

use oplus_dsl::ir::Binary;
use pulp::Simd;

use crate::cpu::kernel::{Action, Kernel, Source};

/// A term of a sum: a register, or the product of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) is_subtracted: bool,
    pub(super) factor: usize,
    pub(super) times: Option<usize>,
}

/// The sums of a kernel.
pub(super) struct Chains<'a> {
    kernel: &'a Kernel,
    /// How many nodes and next values read each node.
    uses: Vec<usize>,
}

impl<'a> Chains<'a> {
    pub(super) fn of(kernel: &'a Kernel) -> Chains<'a> {
        let mut uses = vec![0; kernel.nodes.len()];
        let operands = kernel.nodes.iter().flat_map(|node| &node.operands);
        for source in operands.chain(kernel.next.iter().flatten()) {
            if let Source::Node(k) = source {
                uses[*k] += 1;
            }
        }
        Chains { kernel, uses }
    }

    /// The terms of the chain that ends in a node, by `place`, the register of a source, and the nodes that are parts of it. A chain
    /// has at least one product or three terms.
    pub(super) fn ending_in(&self, node: usize, place: impl Fn(Source) -> usize) -> Option<(Vec<Term>, Vec<usize>)> {
        let (mut terms, mut parts, mut at) = (vec![], vec![], node);
        loop {
            let (op, mut l, mut r) = self.sum(at)?;
            if self.link(l).is_none() && op == Binary::Add && self.link(r).is_some() {
                (l, r) = (r, l);
            }
            terms.push(self.term(r, op == Binary::Sub, &place, &mut parts));
            match self.link(l) {
                Some(next) => {
                    parts.push(next);
                    at = next;
                }
                None => {
                    terms.push(self.term(l, false, &place, &mut parts));
                    break;
                }
            }
        }
        terms.reverse();
        (terms.len() > 2 || terms.iter().any(|term| term.times.is_some())).then_some((terms, parts))
    }

    /// The node that a source is, if it is an addition or a subtraction that nothing else reads.
    fn link(&self, source: Source) -> Option<usize> {
        let Source::Node(k) = source else { return None };
        (self.uses[k] == 1 && self.sum(k).is_some()).then_some(k)
    }

    fn sum(&self, node: usize) -> Option<(Binary, Source, Source)> {
        let node = &self.kernel.nodes[node];
        match (node.action, &node.operands[..]) {
            (Action::Binary(op @ (Binary::Add | Binary::Sub)), [l, r]) => Some((op, *l, *r)),
            _ => None,
        }
    }

    fn term(
        &self,
        source: Source,
        is_subtracted: bool,
        place: impl Fn(Source) -> usize,
        parts: &mut Vec<usize>,
    ) -> Term {
        if let Source::Node(k) = source
            && self.uses[k] == 1
            && let (Action::Binary(Binary::Mul), [a, b]) =
                (self.kernel.nodes[k].action, &self.kernel.nodes[k].operands[..])
        {
            parts.push(k);
            return Term { is_subtracted, factor: place(*a), times: Some(place(*b)) };
        }
        Term { is_subtracted, factor: place(source), times: None }
    }
}

/// How many vectors of a register are added up at once.
const VECTORS: usize = 8;

macro_rules! sums {
    ($name:ident, $t:ty, $vector:ident, $slices:ident, $slices_mut:ident, $add:ident, $sub:ident, $mul:ident) => {
        /// Adds up terms of registers.
        #[inline(always)]
        pub(super) fn $name<S: Simd, const W: usize>(simd: S, dst: &mut [$t; W], terms: &[Term], before: &[[$t; W]]) {
            let (dst, _) = S::$slices_mut(dst);
            let (whole, rest) = dst.as_chunks_mut::<VECTORS>();
            let done = whole.len() * VECTORS;
            for (k, dst) in whole.iter_mut().enumerate() {
                *dst = sum(simd, k * VECTORS, terms, before);
            }
            for (k, dst) in rest.iter_mut().enumerate() {
                [*dst] = sum(simd, done + k, terms, before);
            }

            /// Some vectors of the sum, from one of them on.
            #[inline(always)]
            fn sum<S: Simd, const W: usize, const N: usize>(
                simd: S,
                at: usize,
                terms: &[Term],
                before: &[[$t; W]],
            ) -> [S::$vector; N] {
                let [first, rest @ ..] = terms else { unreachable!("a sum has terms") };
                let mut sum = term(simd, at, *first, before);
                for one in rest {
                    let addend: [S::$vector; N] = term(simd, at, *one, before);
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
                before: &[[$t; W]],
            ) -> [S::$vector; N] {
                let mut all: [S::$vector; N] = load::<S, W, N>(at, &before[term.factor]);
                if let Some(times) = term.times {
                    let times: [S::$vector; N] = load::<S, W, N>(at, &before[times]);
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
