//! Where temporary tensors lie. Those that are never needed at the same time share memory.

use std::ops::Range;

use super::{Arg, Plan};

/// Temporary tensors begin at multiples of this many bytes.
const ALIGN: u128 = 256;

/// The memory of a plan's temporary tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Where each of them begins, in bytes.
    pub starts: Vec<u128>,
    /// The bytes of all.
    pub bytes: u128,
}

/// The bytes of a temporary tensor, and the steps during which it holds what another step reads.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub bytes: u128,
    pub spans: Vec<Range<usize>>,
}

impl Need {
    /// Whether two tensors are needed at the same time.
    fn meets(&self, other: &Need) -> bool {
        let (mut own, mut others) = (self.spans.iter().peekable(), other.spans.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            if a.start < b.end && b.start < a.end {
                return true;
            }
            if a.end <= b.end {
                own.next()
            } else {
                others.next()
            };
        }
        false
    }
}

impl Places {
    /// The places of temporary tensors: the largest first, each at the lowest place that none has with which it is needed.
    pub(super) fn of(needs: &[Need]) -> Places {
        let mut order: Vec<usize> = (0..needs.len()).collect();
        order.sort_by_key(|k| std::cmp::Reverse(needs[*k].bytes));
        let mut places = Places { starts: vec![0; needs.len()], bytes: 0 };
        for (placed, k) in order.iter().enumerate() {
            let room = needs[*k].bytes.next_multiple_of(ALIGN);
            let beside = order[..placed].iter().filter(|other| needs[**other].meets(&needs[*k]));
            let mut taken: Vec<(u128, u128)> =
                beside.map(|other| (places.starts[*other], needs[*other].bytes.next_multiple_of(ALIGN))).collect();
            taken.sort_unstable();
            let mut start = 0;
            for (from, bytes) in taken {
                if start + room <= from {
                    break;
                }
                start = start.max(from + bytes);
            }
            places.starts[*k] = start;
            places.bytes = places.bytes.max(start + room);
        }
        places
    }
}

impl Plan {
    /// Where the temporary tensors lie in the memory of a call.
    ///
    /// A tensor is needed from the first launch that it is an argument of to the last one. One that only launches of
    /// [pieces](Plan::pieces) have is needed in each piece by itself.
    pub fn places(&self) -> Places {
        let mut uses: Vec<Vec<usize>> = vec![vec![]; self.buffers.len()];
        for (step, launch) in self.steps.iter().enumerate() {
            for arg in &launch.args {
                if let Arg::Buffer(k) = arg
                    && uses[*k as usize].last() != Some(&step)
                {
                    uses[*k as usize].push(step);
                }
            }
        }
        let need = |(buffer, uses): (&super::Buffer, &Vec<usize>)| {
            let bytes = u128::from(buffer.len) * buffer.elem.bytes().unwrap_or(8) as u128;
            Need { bytes, spans: self.spans(uses) }
        };
        Places::of(&self.buffers.iter().zip(&uses).map(need).collect::<Vec<_>>())
    }

    /// The bytes that the temporary tensors take.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.places().bytes).unwrap_or(u64::MAX)
    }

    /// The steps during which a tensor is needed that these steps use.
    fn spans(&self, uses: &[usize]) -> Vec<Range<usize>> {
        let span = |uses: &[usize]| Some(*uses.first()?..uses.last()? + 1);
        let of_piece = |piece: &Range<usize>| {
            let (from, to) = (piece.start, piece.end);
            let own = uses.partition_point(|step| *step < from)..uses.partition_point(|step| *step < to);
            &uses[own]
        };
        let inside: usize = self.pieces.iter().map(|piece| of_piece(piece).len()).sum();
        if inside == uses.len() {
            return self.pieces.iter().filter_map(|piece| span(of_piece(piece))).collect();
        }
        span(uses).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(bytes: u128, span: Range<usize>) -> Need {
        Need { bytes, spans: std::iter::once(span).collect() }
    }

    #[test]
    fn tensors_that_are_needed_together_lie_one_behind_the_other() {
        let needs = [need(260, 0..2), need(0, 0..3), need(1, 1..3), need(1 << 35, 1..2)];
        let places = Places::of(&needs);
        assert_eq!(places, Places { starts: vec![1 << 35, 0, (1 << 35) + 512, 0], bytes: (1 << 35) + 768 });
    }

    #[test]
    fn a_tensor_takes_the_memory_of_those_that_are_no_longer_needed() {
        let needs = [need(1024, 0..2), need(512, 1..3), need(1024, 2..4), need(300, 3..5)];
        assert_eq!(Places::of(&needs), Places { starts: vec![0, 1024, 0, 1024], bytes: 1536 });
    }

    #[test]
    fn tensors_of_pieces_meet_where_any_piece_needs_both() {
        let in_pieces = |spans: [Range<usize>; 2]| Need { bytes: 256, spans: spans.to_vec() };
        let (first, second) = (in_pieces([0..2, 4..6]), in_pieces([2..4, 6..8]));
        assert_eq!(Places::of(&[first.clone(), second.clone()]).bytes, 256);
        let across = need(256, 3..9);
        assert_eq!(Places::of(&[first, second, across]).bytes, 512);
    }

    /// No two of many tensors that are needed at the same step overlap, by looking at every step.
    #[test]
    fn none_overlaps_another_that_is_needed_at_the_same_step() {
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let needs: Vec<Need> = (0..1 + next(12))
                .map(|_| {
                    let (bytes, from, len) = (u128::from(next(2000)), next(8) as usize, 1 + next(4) as usize);
                    let again = (next(3) == 0).then_some(14..15);
                    Need { bytes, spans: std::iter::once(from..from + len).chain(again).collect() }
                })
                .collect();
            let places = Places::of(&needs);
            for step in 0..16 {
                let at: Vec<usize> =
                    (0..needs.len()).filter(|k| needs[*k].spans.iter().any(|span| span.contains(&step))).collect();
                for (i, a) in at.iter().enumerate() {
                    assert!(places.starts[*a] + needs[*a].bytes <= places.bytes);
                    for b in at[i + 1..].iter().filter(|b| needs[**b].bytes > 0 && needs[*a].bytes > 0) {
                        let [x, y] = [a, b].map(|k| places.starts[*k]..places.starts[*k] + needs[*k].bytes);
                        assert!(x.end <= y.start || y.end <= x.start, "{needs:?} {places:?}");
                    }
                }
            }
        }
    }
}
