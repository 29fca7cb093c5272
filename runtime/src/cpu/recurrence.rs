//! Loops for fields whose next value depends on their own state and on elements only.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use oplus_dsl::ir::Binary;

use super::arithmetic::{Float, Integer};
use super::kernel::Recurrence;
use super::lanes::FirstElement;
use super::linear::{self, Coefficient, Direction, Series};
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
        starts: [geometry.elements[c].start, geometry.elements[e].start, out.start],
        along: [geometry.elements[c].step, geometry.elements[e].step, out.step],
        exclusive: geometry.exclusive,
        in_blocks: geometry.in_blocks,
        first: geometry.first,
    };
    let (c, e) = (elements[c], elements[e]);
    match state {
        Values::F32(state) => field.single(state, c.of(), e.of(), output.map(Values::all)),
        Values::F64(state) => field.float(state, c.of(), e.of(), output.map(Values::all)),
        Values::I32(state) => field.integer::<i32, i32>(state, c.of(), e.of(), output.map(Values::all)),
        Values::I64(state) => field.integer::<i64, i64>(state, c.of(), e.of(), output.map(Values::all)),
        Values::U32(state) => field.integer::<u32, i32>(state, c.of(), e.of(), output.map(Values::all)),
        Values::U64(state) => field.integer::<u64, i64>(state, c.of(), e.of(), output.map(Values::all)),
        Values::Bool(state) => field.bool(state, e.of(), output.map(Values::all)),
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
    /// Where the first step lies: coefficient, element, output.
    starts: [usize; 3],
    /// The strides along the swept axis.
    along: [isize; 3],
    exclusive: bool,
    in_blocks: bool,
    first: FirstElement,
}

impl Field {
    /// f32 along contiguous memory stays in registers.
    fn single(&self, state: &mut [f32], c: &[f32], e: &[f32], out: Option<&mut [f32]>) {
        let [along_c, along_e, along_out] = self.along;
        let lies_well = self.is_along_memory() && [0, along_e].contains(&along_c) && self.steps >= 64;
        let contiguous = lies_well && linear::is_available();
        match (self.recurrence, out) {
            (Recurrence::Linear { .. }, None) if contiguous => {
                self.each_row(|[s, at_c, at_e, _]| {
                    let series = self.series(c, at_c, self.row(e, at_e));
                    state[s] = linear::linear_total(series, state[s], self.first);
                });
            }
            (Recurrence::Fold { op: Binary::Mul, .. }, None) if contiguous => {
                self.each_row(|[s, _, at, _]| {
                    state[s] = linear::product(self.row(e, at), self.direction(), state[s], self.first);
                });
            }
            (Recurrence::Linear { .. } | Recurrence::Fold { op: Binary::Add, .. }, Some(out))
                if contiguous && along_out == along_e =>
            {
                self.in_registers(state, c, e, out);
            }
            (_, out) => self.float(state, c, e, out),
        }
    }

    /// Whether the elements of a row are neighbours in memory, and may be taken in blocks.
    fn is_along_memory(&self) -> bool {
        self.in_blocks && matches!(self.along[1], 1 | -1)
    }

    /// The direction in which elements along memory are swept.
    fn direction(&self) -> Direction {
        Direction::of(self.along[1])
    }

    /// The elements of a row along memory, whose first step lies at a place.
    #[inline(always)]
    fn row<'a, T>(&self, all: &'a [T], at: usize) -> &'a [T] {
        &all[self.row_from(at)..][..self.steps]
    }

    /// Where memory of a row begins.
    #[inline(always)]
    fn row_from(&self, at: usize) -> usize {
        if self.direction() == Direction::Forward { at } else { at + 1 - self.steps }
    }

    /// A row of elements with its coefficients, of which the first lies at a place.
    fn series<'a>(&self, c: &'a [f32], at_c: usize, x: &'a [f32]) -> Series<'a> {
        let c = if self.along[0] == 0 { Coefficient::All(c[at_c]) } else { Coefficient::Each(self.row(c, at_c)) };
        Series { c, x, direction: self.direction() }
    }

    /// An exclusive scan is the inclusive one, written one place further on: its last result is the state alone.
    fn in_registers(&self, state: &mut [f32], c: &[f32], e: &[f32], out: &mut [f32]) {
        let is_sum = matches!(self.recurrence, Recurrence::Fold { .. });
        let direction = self.direction();
        let scan = |series: Series<'_>, out: &mut [f32], before: f32, first: FirstElement| match is_sum {
            true => linear::sum(series.x, direction, out, before),
            false => linear::linear(series, out, before, first),
        };
        self.each_row(|[s, at_c, at_e, at]| {
            let x = self.row(e, at_e);
            let series =
                if is_sum { Series { c: Coefficient::All(1.0), x, direction } } else { self.series(c, at_c, x) };
            let (out, before) = (&mut out[self.row_from(at)..][..self.steps], state[s]);
            if !self.exclusive {
                return state[s] = scan(series, out, before, self.first);
            }
            // Blocks are the same as of the inclusive scan, so that the state is.
            let (blocks, mut last) = ((self.steps - 1) / 64 * 64, [0.0; 64]);
            let (of_blocks, rest) = series.split(blocks);
            let (opening, others) = direction.split_mut(out, 1);
            let (of_out, rest_of_out) = direction.split_mut(others, blocks);
            let between = scan(of_blocks, of_out, before, self.first);
            let last = &mut last[..rest.x.len()];
            state[s] = scan(rest, last, between, if blocks == 0 { self.first } else { FirstElement::Combined });
            opening[0] = before;
            rest_of_out.copy_from_slice(direction.split(last, rest_of_out.len()).0);
        });
    }

    /// Calls `visit` with where the first step of every lane lies in every operand.
    #[inline(always)]
    fn each_row(&self, mut visit: impl FnMut([usize; 4])) {
        let [start_c, start_e, start_out] = self.starts;
        self.lanes.each(
            #[inline(always)]
            |at| {
                (0..self.lanes.run).for_each(|k| {
                    let [s, c, e, out] = std::array::from_fn(|i| at[i] + k * self.lanes.step[i] as usize);
                    visit([s, start_c + c, start_e + e, start_out + out]);
                })
            },
        );
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

    /// `S` has as many bits: all but maxima and minima are the same of signed and unsigned integers.
    fn integer<T: Integer + Pod, S: Integer + Pod>(&self, state: &mut [T], c: &[T], e: &[T], out: Option<&mut [T]>) {
        match self.recurrence {
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
            _ => {
                let out = out.map(cast_slice_mut);
                self.wrapping::<S>(cast_slice_mut(state), cast_slice(c), cast_slice(e), out);
            }
        }
    }

    /// Integers as bits that wrap around.
    fn wrapping<T: Integer>(&self, state: &mut [T], c: &[T], e: &[T], out: Option<&mut [T]>) {
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
        if out.is_none() && self.is_along_memory() {
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
        let direction = self.direction();
        simd(
            #[inline(always)]
            || {
                self.each_row(
                    #[inline(always)]
                    |[s, _, at, _]| {
                        let row = direction.split(self.row(e, at), self.first.from()).1;
                        let (in_blocks, tail) = direction.split(row, row.len() / 64 * 64);
                        let before = state[s];
                        let total = parts(in_blocks, direction, f).map(|parts| {
                            let total = fold_in_order(&parts, direction, before, f);
                            fold_in_order(tail, direction, total, f)
                        });
                        state[s] = match total {
                            Some(total) if !is_lost(before, total) => total,
                            _ => fold_in_order(row, direction, before, f),
                        };
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
        simd(
            #[inline(always)]
            || {
                self.lanes.each(
                    #[inline(always)]
                    |[s, at_c, at_e, at]| {
                        let state = &mut state[s..][..self.lanes.run];
                        let mut places = [at_c, at_e, at];
                        let step = |k: usize, steps: usize| (self.along[k] as usize).wrapping_mul(steps);
                        let before = self.first.from();
                        for (k, place) in places.iter_mut().enumerate() {
                            *place = place.wrapping_add(self.starts[k]).wrapping_add(step(k, before));
                        }
                        for _ in before..self.steps {
                            let out = out.as_deref_mut().map(|out| &mut out[places[2]..]);
                            self.step(state, &c[places[0]..], &e[places[1]..], out, f);
                            for (k, place) in places.iter_mut().enumerate() {
                                *place = place.wrapping_add(self.along[k] as usize);
                            }
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

/// Folds elements one after the other. One loop goes in both directions, since it is compiled for every type and operation.
#[inline(always)]
fn fold_in_order<T: Scalar>(all: &[T], direction: Direction, before: T, f: impl Fn(T, T) -> T) -> T {
    let (first, by) = match direction {
        Direction::Forward => (0, 1),
        Direction::Backward => (all.len().wrapping_sub(1), -1),
    };
    (0..all.len() as isize).fold(before, |state, step| f(state, all[first.wrapping_add_signed(by * step)]))
}

/// Folds blocks of 64 element by element, from the first of them on; `None` where there is no block.
#[inline(always)]
fn parts<T: Scalar>(all: &[T], direction: Direction, f: impl Fn(T, T) -> T) -> Option<[T; 64]> {
    let blocks = all.as_chunks::<64>().0;
    let (first, by) = match direction {
        Direction::Forward => (0, 1),
        Direction::Backward => (blocks.len().wrapping_sub(1), -1),
    };
    let mut parts = *blocks.get(first)?;
    for block in 1..blocks.len() as isize {
        let block = &blocks[first.wrapping_add_signed(by * block)];
        parts.iter_mut().zip(block).for_each(|(part, e)| *part = f(*part, *e));
    }
    Some(parts)
}
