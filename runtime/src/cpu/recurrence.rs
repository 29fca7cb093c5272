//! Loops for fields whose next value depends on their own state and on elements only.

use oplus_dsl::ir::Binary;

use super::arithmetic::{Float, Integer};
use super::kernel::Recurrence;
use super::lanes::First;
use super::linear::{self, Coefficient};
use super::loops::Loops;
use super::lost::is_lost;
use super::simd::simd;
use super::sweep::Geometry;
use super::values::{Scalar, Slice, Values};

/// Sweeps one field; see [`super::sweep::sweep`].
pub(super) fn sweep(
    recurrence: Recurrence,
    geometry: &Geometry,
    field: usize,
    elements: &[Slice<'_>],
    state: &mut Values,
    output: Option<&mut Values>,
) {
    let (c, e) = match recurrence {
        Recurrence::Fold { element, .. } => (element, element),
        Recurrence::Linear { coefficient, element } => (coefficient, element),
    };
    let (own, out) = (&geometry.states[field], &geometry.outputs[field]);
    let lanes = [&own[..], &geometry.elements[c].lanes, &geometry.elements[e].lanes, &out.lanes];
    let field = Field {
        recurrence,
        lanes: geometry.field_loops(field, lanes),
        steps: geometry.steps,
        along: [geometry.elements[c].step, geometry.elements[e].step, out.step].map(|step| step as usize),
        exclusive: geometry.exclusive,
        in_blocks: geometry.in_blocks,
        first: geometry.first,
    };
    let (c, e) = (elements[c].from(geometry.elements[c].start), elements[e].from(geometry.elements[e].start));
    let start = out.start;
    match state {
        Values::F32(state) => field.single(state, c.of(), e.of(), output.map(|out| &mut out.all()[start..])),
        Values::F64(state) => field.float(state, c.of(), e.of(), output.map(|out| &mut out.all()[start..])),
        Values::I32(state) => field.integer(state, c.of(), e.of(), output.map(|out| &mut out.all()[start..])),
        Values::I64(state) => field.integer(state, c.of(), e.of(), output.map(|out| &mut out.all()[start..])),
        Values::U32(state) => field.integer(state, c.of(), e.of(), output.map(|out| &mut out.all()[start..])),
        Values::U64(state) => field.integer(state, c.of(), e.of(), output.map(|out| &mut out.all()[start..])),
        Values::Bool(state) => field.bool(state, e.of(), output.map(|out| &mut out.all()[start..])),
    }
}

/// Whether a sweep along contiguous memory needs no lanes to be fast. `is_single` tells whether an element is `f32` and
/// contiguous.
pub(super) fn is_fast_along_memory(
    recurrence: Recurrence,
    has_outputs: bool,
    is_single: impl Fn(usize) -> bool,
) -> bool {
    match recurrence {
        Recurrence::Fold { op, element } if has_outputs => {
            op == Binary::Add && linear::is_available() && is_single(element)
        }
        Recurrence::Fold { .. } => true,
        Recurrence::Linear { element, .. } => linear::is_available() && is_single(element),
    }
}

/// A field's sweep.
struct Field {
    recurrence: Recurrence,
    /// Over state, coefficient, element and output.
    lanes: Loops<4>,
    steps: usize,
    /// The strides along the swept axis: coefficient, element, output.
    along: [usize; 3],
    exclusive: bool,
    in_blocks: bool,
    first: First,
}

impl Field {
    /// f32 along contiguous memory stays in registers.
    fn single(&self, state: &mut [f32], c: &[f32], e: &[f32], out: Option<&mut [f32]>) {
        let [along_c, along_e, along_out] = self.along;
        let contiguous = self.in_blocks && along_c <= 1 && along_e == 1 && self.steps >= 64;
        match (self.recurrence, out) {
            (Recurrence::Linear { .. }, None) if contiguous && linear::is_available() => {
                self.each_row(|[s, at_c, at_e, _]| {
                    let c = self.coefficient(c, at_c, self.steps);
                    state[s] = linear::linear_total(c, &e[at_e..][..self.steps], state[s], self.first);
                });
            }
            (Recurrence::Fold { op: Binary::Mul, .. }, None) if contiguous && linear::is_available() => {
                self.each_row(|[s, _, at, _]| state[s] = linear::product(&e[at..][..self.steps], state[s], self.first));
            }
            (Recurrence::Linear { .. } | Recurrence::Fold { op: Binary::Add, .. }, Some(out))
                if contiguous && along_out == 1 && linear::is_available() =>
            {
                self.in_registers(state, c, e, out);
            }
            (_, out) => self.float(state, c, e, out),
        }
    }

    /// An exclusive scan is the inclusive one, written one place further on: its last result is the state alone.
    fn in_registers(&self, state: &mut [f32], c: &[f32], e: &[f32], out: &mut [f32]) {
        let is_sum = matches!(self.recurrence, Recurrence::Fold { .. });
        let scan = |at_c: usize, x: &[f32], out: &mut [f32], before: f32, first: First| match is_sum {
            true => linear::sum(x, out, before),
            false => linear::linear(self.coefficient(c, at_c, x.len()), x, out, before, first),
        };
        self.each_row(|[s, at_c, at_e, at]| {
            let (x, out, before) = (&e[at_e..][..self.steps], &mut out[at..][..self.steps], state[s]);
            if !self.exclusive {
                return state[s] = scan(at_c, x, out, before, self.first);
            }
            // Blocks are the same as of the inclusive scan, so that the state is.
            let (blocks, mut last) = ((self.steps - 1) / 64 * 64, [0.0; 64]);
            let between = scan(at_c, &x[..blocks], &mut out[1..][..blocks], before, self.first);
            let (rest, first) = (&x[blocks..], if blocks == 0 { self.first } else { First::AsOthers });
            state[s] = scan(at_c + blocks * self.along[0], rest, &mut last[..rest.len()], between, first);
            out[0] = before;
            out[1 + blocks..].copy_from_slice(&last[..rest.len() - 1]);
        });
    }

    /// Calls `visit` with every operand's offset at the start of every lane.
    #[inline(always)]
    fn each_row(&self, mut visit: impl FnMut([usize; 4])) {
        self.lanes.each(
            #[inline(always)]
            |at| {
                (0..self.lanes.run)
                    .for_each(|k| visit(std::array::from_fn(|i| at[i] + k * self.lanes.step[i] as usize)))
            },
        );
    }

    fn coefficient<'a>(&self, c: &'a [f32], at: usize, n: usize) -> Coefficient<'a> {
        if self.along[0] == 0 { Coefficient::All(c[at]) } else { Coefficient::Each(&c[at..][..n]) }
    }

    fn float<T: Float>(&self, state: &mut [T], c: &[T], e: &[T], out: Option<&mut [T]>) {
        match self.recurrence {
            Recurrence::Linear { .. } => self.linear(
                state,
                c,
                e,
                out,
                #[inline(always)]
                |s, c, e| c.mul(s).add(e),
            ),
            Recurrence::Fold { op: Binary::Add, .. } => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.add(e),
            ),
            Recurrence::Fold { op: Binary::Max, .. } => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.max(e),
            ),
            Recurrence::Fold { op: Binary::Min, .. } => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.min(e),
            ),
            Recurrence::Fold { .. } => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.mul(e),
            ),
        }
    }

    fn integer<T: Integer>(&self, state: &mut [T], c: &[T], e: &[T], out: Option<&mut [T]>) {
        let Recurrence::Fold { op, .. } = self.recurrence else {
            return self.linear(
                state,
                c,
                e,
                out,
                #[inline(always)]
                |s, c, e| c.mul(s).add(e),
            );
        };
        match op {
            Binary::Add => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.add(e),
            ),
            Binary::Max => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.max(e),
            ),
            Binary::Min => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.min(e),
            ),
            Binary::And => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.and(e),
            ),
            Binary::Or => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.or(e),
            ),
            Binary::Xor => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.xor(e),
            ),
            _ => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s.mul(e),
            ),
        }
    }

    fn bool(&self, state: &mut [bool], e: &[bool], out: Option<&mut [bool]>) {
        match self.recurrence {
            Recurrence::Fold { op: Binary::And, .. } => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s & e,
            ),
            Recurrence::Fold { op: Binary::Or, .. } => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s | e,
            ),
            _ => self.fold(
                state,
                e,
                out,
                #[inline(always)]
                |s, e| s ^ e,
            ),
        }
    }

    #[inline(always)]
    fn fold<T: Scalar>(&self, state: &mut [T], e: &[T], out: Option<&mut [T]>, f: impl Fn(T, T) -> T + Copy) {
        if out.is_none() && self.along[1] == 1 && self.in_blocks {
            return self.fold_contiguous(state, e, f);
        }
        self.linear(
            state,
            e,
            e,
            out,
            #[inline(always)]
            |s, _, e| f(s, e),
        );
    }

    /// A reduction along contiguous memory, in 64 interleaved parts: the operation is commutative. Where the parts lose a
    /// finite state, it is taken through the elements one by one.
    #[inline(always)]
    fn fold_contiguous<T: Scalar>(&self, state: &mut [T], e: &[T], f: impl Fn(T, T) -> T + Copy) {
        simd(
            #[inline(always)]
            || {
                self.each_row(
                    #[inline(always)]
                    |[s, _, at, _]| {
                        let row = &e[at..][self.first.from()..self.steps];
                        let Some((first, rest)) = row.split_first_chunk::<64>() else {
                            return state[s] = row.iter().fold(state[s], |s, e| f(s, *e));
                        };
                        let mut parts = *first;
                        let blocks = rest.chunks_exact(64);
                        let tail = blocks.remainder();
                        for block in blocks {
                            parts.iter_mut().zip(block).for_each(|(part, e)| *part = f(*part, *e));
                        }
                        let total = parts.iter().chain(tail).fold(state[s], |s, e| f(s, *e));
                        let steps = || row.iter().fold(state[s], |s, e| f(s, *e));
                        state[s] = if is_lost(state[s], total) { steps() } else { total };
                    },
                )
            },
        );
    }

    #[inline(always)]
    fn linear<T: Scalar>(
        &self,
        state: &mut [T],
        c: &[T],
        e: &[T],
        mut out: Option<&mut [T]>,
        f: impl Fn(T, T, T) -> T + Copy,
    ) {
        let [along_c, along_e, along_out] = self.along;
        simd(
            #[inline(always)]
            || {
                self.lanes.each(
                    #[inline(always)]
                    |[s, at_c, at_e, at]| {
                        let state = &mut state[s..][..self.lanes.run];
                        for t in self.first.from()..self.steps {
                            let out = out.as_deref_mut().map(|out| &mut out[at + t * along_out..]);
                            self.step(state, &c[at_c + t * along_c..], &e[at_e + t * along_e..], out, f);
                        }
                    },
                )
            },
        );
    }

    /// One step of a run of lanes.
    #[inline(always)]
    fn step<T: Scalar>(&self, state: &mut [T], c: &[T], e: &[T], out: Option<&mut [T]>, f: impl Fn(T, T, T) -> T) {
        let [_, step_c, step_e, _] = self.lanes.step;
        let Some(out) = out else {
            return match (step_c, step_e) {
                (0, 0) => state.iter_mut().for_each(|s| *s = f(*s, c[0], e[0])),
                (0, _) => state.iter_mut().zip(e).for_each(|(s, e)| *s = f(*s, c[0], *e)),
                (_, 0) => state.iter_mut().zip(c).for_each(|(s, c)| *s = f(*s, *c, e[0])),
                _ => state.iter_mut().zip(c).zip(e).for_each(|((s, c), e)| *s = f(*s, *c, *e)),
            };
        };
        let pairs = state.iter_mut().zip(out);
        macro_rules! next {
            ($s:ident, $out:ident, $c:expr, $e:expr) => {{
                let value = f(*$s, $c, $e);
                *$out = if self.exclusive { *$s } else { value };
                *$s = value;
            }};
        }
        match (step_c, step_e) {
            (0, 0) => pairs.for_each(
                #[inline(always)]
                |(s, out)| next!(s, out, c[0], e[0]),
            ),
            (0, _) => pairs.zip(e).for_each(
                #[inline(always)]
                |((s, out), e)| next!(s, out, c[0], *e),
            ),
            (_, 0) => pairs.zip(c).for_each(
                #[inline(always)]
                |((s, out), c)| next!(s, out, *c, e[0]),
            ),
            _ => pairs.zip(c).zip(e).for_each(
                #[inline(always)]
                |(((s, out), c), e)| next!(s, out, *c, *e),
            ),
        }
    }
}
