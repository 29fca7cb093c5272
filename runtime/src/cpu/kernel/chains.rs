//! Sums of products: what most nodes of operators on vectors and matrices are parts of.
//!
//! A chain of additions and subtractions whose intermediate values nothing else reads is one instruction. Its accumulator stays in
//! registers of the processor. Every product and every addition is rounded, in the order of the chain.

use oplus_dsl::ir::Binary;

use super::program::{Place, Term};
use super::{Action, Kernel, Source};

/// The sums of a kernel.
pub(super) struct Chains<'a> {
    kernel: &'a Kernel,
    /// How many nodes and next values read each node.
    pub(super) uses: Vec<usize>,
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

    /// The terms of the chain that ends in a node, by `place`, the place of a source, and the nodes that are parts of it. A chain
    /// has at least one product or three terms.
    pub(super) fn ending_in(&self, node: usize, place: impl Fn(Source) -> Place) -> Option<(Vec<Term>, Vec<usize>)> {
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
        place: impl Fn(Source) -> Place,
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
