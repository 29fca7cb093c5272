//! Loops over vectors and rows of matrices.
//!
//! A matrix lies by rows of the axis across, one for each index of the axis that matrices of steps act on. Sums over rows keep one
//! sum for each index across and go from the first row to the last. Sums within a row are taken in [`LANES`] parts, one after the other
//! where the order is the program's.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::group::Kind;

/// A number that steps compute in.
pub(super) trait Real:
    Copy
    + Send
    + Sync
    + PartialEq
    + bytemuck::Pod
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    /// The nearest number.
    fn of(x: f64) -> Self;
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    fn of(x: f64) -> f32 {
        x as f32
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    fn of(x: f64) -> f64 {
        x
    }
}

/// In so many parts a row is summed.
const LANES: usize = 16;

/// The most factors of a product.
pub(super) const FACTORS: usize = 8;

/// A value at one step.
#[derive(Clone, Copy)]
pub(super) struct View<'s, T> {
    pub(super) kind: Kind,
    /// Its elements; none of a constant.
    pub(super) data: &'s [T],
    /// The number, if it is one.
    pub(super) number: T,
}

/// A value in one row.
#[derive(Clone, Copy)]
pub(super) enum Part<'s, T> {
    Same(T),
    Slice(&'s [T]),
}

impl<'s, T: Real> View<'s, T> {
    /// The value in row k of a matrix.
    #[inline(always)]
    pub(super) fn row(&self, k: usize, width: usize) -> Part<'s, T> {
        match self.kind {
            Kind::Number => Part::Same(self.number),
            Kind::Along => Part::Same(self.data[k]),
            Kind::Across => Part::Slice(self.data),
            Kind::Whole | Kind::Square => Part::Slice(&self.data[k * width..][..width]),
        }
    }

    /// The value as one row, of a result that is no matrix.
    #[inline(always)]
    fn flat(&self) -> Part<'s, T> {
        if self.kind == Kind::Number { Part::Same(self.number) } else { Part::Slice(self.data) }
    }
}

/// How many rows a result of a kind is computed in.
#[inline(always)]
fn rows<'s, T: Real>(kind: Kind, views: &[View<'s, T>], length: usize) -> (usize, bool) {
    let has_both = kind == Kind::Whole
        || views.iter().any(|view| view.kind == Kind::Whole)
        || views.iter().any(|view| view.kind == Kind::Along) && views.iter().any(|view| view.kind == Kind::Across);
    if has_both { (length, true) } else { (1, false) }
}

#[inline(always)]
fn part<'s, T: Real>(view: &View<'s, T>, k: usize, width: usize, by_rows: bool) -> Part<'s, T> {
    if by_rows { view.row(k, width) } else { view.flat() }
}

/// The factors of one row: the product of those that are the same in all of it, and the others.
struct Factors<'s, T> {
    same: Option<T>,
    slices: [&'s [T]; FACTORS],
    count: usize,
}

impl<'s, T: Real> Factors<'s, T> {
    #[inline(always)]
    fn of(views: &[View<'s, T>], k: usize, width: usize, by_rows: bool) -> Self {
        let mut factors = Factors { same: None, slices: [&[]; FACTORS], count: 0 };
        for view in views {
            match part(view, k, width, by_rows) {
                Part::Same(x) => factors.same = Some(factors.same.map_or(x, |y| y * x)),
                Part::Slice(slice) => {
                    factors.slices[factors.count] = slice;
                    factors.count += 1;
                }
            }
        }
        factors
    }

    /// Calls `each` with the product at every index.
    #[inline(always)]
    fn each(&self, out: &mut [T], each: impl Fn(&mut T, T)) {
        match (self.same, &self.slices[..self.count]) {
            (same, []) => out.iter_mut().for_each(
                #[inline(always)]
                |out| each(out, same.unwrap_or(T::ONE)),
            ),
            (None, [a]) => out.iter_mut().zip(*a).for_each(
                #[inline(always)]
                |(out, a)| each(out, *a),
            ),
            (Some(c), [a]) => out.iter_mut().zip(*a).for_each(
                #[inline(always)]
                |(out, a)| each(out, c * *a),
            ),
            (None, [a, b]) => out.iter_mut().zip(*a).zip(*b).for_each(
                #[inline(always)]
                |((out, a), b)| each(out, *a * *b),
            ),
            (same, [a, rest @ ..]) => {
                for (i, out) in out.iter_mut().enumerate() {
                    let product = rest.iter().fold(a[i], |product, factor| product * factor[i]);
                    each(out, same.map_or(product, |c| c * product));
                }
            }
        }
    }

    /// The sum of the product over a row.
    #[inline(always)]
    fn sum(&self, ordered: bool) -> T {
        match (&self.slices[..self.count], ordered) {
            ([a], true) => {
                let terms = a.iter().map(|a| self.same.map_or(*a, |c| c * *a));
                terms.fold(T::ZERO, |sum, x| sum + x)
            }
            ([a, b], false) => self.scaled(in_parts(a, b)),
            (slices, _) => {
                let len = slices.first().map_or(0, |slice| slice.len());
                let at = |i: usize| slices.iter().fold(T::ONE, |product, slice| product * slice[i]);
                self.scaled((0..len).map(at).fold(T::ZERO, |sum, x| sum + x))
            }
        }
    }

    #[inline(always)]
    fn scaled(&self, sum: T) -> T {
        self.same.map_or(sum, |c| c * sum)
    }
}

/// The sum of the products of two rows, in parts.
#[inline(always)]
fn in_parts<T: Real>(a: &[T], b: &[T]) -> T {
    let mut parts = [T::ZERO; LANES];
    let (mut left, mut right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in left.by_ref().zip(right.by_ref()) {
        for ((part, a), b) in parts.iter_mut().zip(a).zip(b) {
            *part = *part + *a * *b;
        }
    }
    let rest = left.remainder().iter().zip(right.remainder()).fold(T::ZERO, |sum, (a, b)| sum + *a * *b);
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for i in 0..count {
            parts[i] = parts[i] + parts[i + count];
        }
    }
    parts[0] + rest
}

/// The product of all views.
#[inline(always)]
pub(super) fn product<T: Real>(out: &mut [T], kind: Kind, views: &[View<'_, T>], negative: bool, size: (usize, usize)) {
    let (length, width) = size;
    let (count, by_rows) = rows(kind, views, length);
    let row = if by_rows { width } else { out.len() };
    for (k, out) in out.chunks_mut(row.max(1)).take(count).enumerate() {
        let factors = Factors::of(views, k, width, by_rows);
        if negative {
            factors.each(
                out,
                #[inline(always)]
                |out, x| *out = -x,
            )
        } else {
            factors.each(
                out,
                #[inline(always)]
                |out, x| *out = x,
            )
        }
    }
}

/// A function of two views.
#[inline(always)]
pub(super) fn map<T: Real>(
    out: &mut [T],
    kind: Kind,
    views: [View<'_, T>; 2],
    size: (usize, usize),
    f: impl Fn(T, T) -> T,
) {
    let (length, width) = size;
    let (count, by_rows) = rows(kind, &views, length);
    let row = if by_rows { width } else { out.len() };
    for (k, out) in out.chunks_mut(row.max(1)).take(count).enumerate() {
        match views.map(|view| part(&view, k, width, by_rows)) {
            [Part::Same(a), Part::Same(b)] => out.fill(f(a, b)),
            [Part::Same(a), Part::Slice(b)] => out.iter_mut().zip(b).for_each(
                #[inline(always)]
                |(out, b)| *out = f(a, *b),
            ),
            [Part::Slice(a), Part::Same(b)] => out.iter_mut().zip(a).for_each(
                #[inline(always)]
                |(out, a)| *out = f(*a, b),
            ),
            [Part::Slice(a), Part::Slice(b)] => {
                out.iter_mut().zip(a).zip(b).for_each(
                    #[inline(always)]
                    |((out, a), b)| *out = f(*a, *b),
                );
            }
        }
    }
}

/// The second view where the first is not 0, the third elsewhere.
#[inline(always)]
pub(super) fn select<T: Real>(out: &mut [T], kind: Kind, views: [View<'_, T>; 3], size: (usize, usize)) {
    let (length, width) = size;
    let (count, by_rows) = rows(kind, &views, length);
    let row = if by_rows { width } else { out.len() };
    for (k, out) in out.chunks_mut(row.max(1)).take(count).enumerate() {
        let [c, a, b] = views.map(|view| part(&view, k, width, by_rows));
        let at = |part: &Part<'_, T>, i: usize| match part {
            Part::Same(x) => *x,
            Part::Slice(slice) => slice[i],
        };
        for (i, out) in out.iter_mut().enumerate() {
            *out = if at(&c, i) == T::ZERO { at(&b, i) } else { at(&a, i) };
        }
    }
}

/// The sum over the rows of a matrix times a vector along them; false where the views are others.
#[inline(always)]
fn read_rows<T: Real>(out: &mut [T], [matrix, vector]: [View<'_, T>; 2], width: usize) -> bool {
    if (matrix.kind, vector.kind) != (Kind::Whole, Kind::Along) {
        return false;
    }
    out.fill(T::ZERO);
    let (mut rows, mut factors) = (matrix.data.chunks_exact(4 * width), vector.data.chunks_exact(4));
    for (rows, c) in rows.by_ref().zip(factors.by_ref()) {
        let (a, rest) = rows.split_at(width);
        let (b, rest) = rest.split_at(width);
        let (d, e) = rest.split_at(width);
        for ((((out, a), b), d), e) in out.iter_mut().zip(a).zip(b).zip(d).zip(e) {
            *out = *out + c[0] * *a + c[1] * *b + c[2] * *d + c[3] * *e;
        }
    }
    for (row, c) in rows.remainder().chunks_exact(width).zip(factors.remainder()) {
        out.iter_mut().zip(row).for_each(
            #[inline(always)]
            |(out, x)| *out = *out + *c * *x,
        );
    }
    true
}

/// The sum within each row of a matrix times a vector across, or times another matrix; false where the views are others.
#[inline(always)]
fn read_columns<T: Real>(out: &mut [T], [matrix, other]: [View<'_, T>; 2], width: usize) -> bool {
    match (matrix.kind, other.kind) {
        (Kind::Whole, Kind::Across) => {
            for (out, row) in out.iter_mut().zip(matrix.data.chunks_exact(width)) {
                *out = in_parts(row, other.data);
            }
        }
        (Kind::Whole, Kind::Whole) => {
            let rows = matrix.data.chunks_exact(width).zip(other.data.chunks_exact(width));
            out.iter_mut().zip(rows).for_each(
                #[inline(always)]
                |(out, (a, b))| *out = in_parts(a, b),
            );
        }
        _ => return false,
    }
    true
}

/// How a product is summed.
#[derive(Clone, Copy)]
pub(super) struct Summing {
    /// Whether the sum is negated.
    pub(super) negative: bool,
    /// Whether it is over the rows, instead of within each.
    pub(super) along: bool,
    /// Whether terms are added one after the other.
    pub(super) ordered: bool,
}

/// The sum of a product over the rows, or within each.
#[inline(always)]
pub(super) fn sum<T: Real>(
    out: &mut [T],
    views: &[View<'_, T>],
    Summing { negative, along, ordered }: Summing,
    (length, width): (usize, usize),
) {
    if !ordered || along {
        let is_done = match (views, along) {
            ([a, b], true) => read_rows(out, [*a, *b], width) || read_rows(out, [*b, *a], width),
            ([a, b], false) => read_columns(out, [*a, *b], width) || read_columns(out, [*b, *a], width),
            _ => false,
        };
        if is_done {
            return if negative {
                out.iter_mut().for_each(
                    #[inline(always)]
                    |x| *x = -*x,
                )
            };
        }
    }
    let (count, by_rows) = rows(Kind::Number, views, length);
    match by_rows && along {
        true => {
            out.fill(T::ZERO);
            for k in 0..count {
                Factors::of(views, k, width, true).each(
                    out,
                    #[inline(always)]
                    |sum, x| *sum = *sum + x,
                );
            }
        }
        false => {
            for (k, out) in out.iter_mut().take(count).enumerate() {
                *out = Factors::of(views, k, width, by_rows).sum(ordered);
            }
        }
    }
    if negative {
        out.iter_mut().for_each(
            #[inline(always)]
            |x| *x = -*x,
        );
    }
}
