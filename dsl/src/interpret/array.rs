//! Dense arrays.

use crate::elem::Ty;
use crate::ir::Literal;

/// A tensor: sizes of its axes in memory order, and its elements, the last axis fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The size of each axis.
    pub sizes: Vec<usize>,
    /// The elements; as many as the product of the sizes.
    pub data: Data,
}

/// Elements of one kind. Floats of every type are held as f64; integers of every type as i64 (of `u64` the same bits).
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Elements of a floating-point type.
    Float(Vec<f64>),
    /// Elements of an integer type.
    Int(Vec<i64>),
    /// Truth values.
    Bool(Vec<bool>),
}

impl Array {
    /// An array of floats.
    pub fn floats(sizes: &[usize], data: impl Into<Vec<f64>>) -> Array {
        Array { sizes: sizes.to_vec(), data: Data::Float(data.into()) }
    }

    /// An array of integers.
    pub fn ints(sizes: &[usize], data: impl Into<Vec<i64>>) -> Array {
        Array { sizes: sizes.to_vec(), data: Data::Int(data.into()) }
    }

    /// An array of truth values.
    pub fn bools(sizes: &[usize], data: impl Into<Vec<bool>>) -> Array {
        Array { sizes: sizes.to_vec(), data: Data::Bool(data.into()) }
    }

    /// The elements, if they are floats.
    pub fn as_floats(&self) -> Option<&[f64]> {
        if let Data::Float(xs) = &self.data { Some(xs) } else { None }
    }

    /// The elements, if they are integers.
    pub fn as_ints(&self) -> Option<&[i64]> {
        if let Data::Int(xs) = &self.data { Some(xs) } else { None }
    }

    /// The elements, if they are truth values.
    pub fn as_bools(&self) -> Option<&[bool]> {
        if let Data::Bool(xs) = &self.data { Some(xs) } else { None }
    }
}

impl Data {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Data::Float(xs) => xs.len(),
            Data::Int(xs) => xs.len(),
            Data::Bool(xs) => xs.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// n times the same element.
    pub fn filled(literal: Literal, n: usize) -> Data {
        match literal {
            Literal::Float(x) => Data::Float(vec![x; n]),
            Literal::Int(x) => Data::Int(vec![x; n]),
            Literal::Bool(x) => Data::Bool(vec![x; n]),
        }
    }

    /// One element.
    pub fn get(&self, i: usize) -> Literal {
        match self {
            Data::Float(xs) => Literal::Float(xs[i]),
            Data::Int(xs) => Literal::Int(xs[i]),
            Data::Bool(xs) => Literal::Bool(xs[i]),
        }
    }

    /// Replaces one element by one of the same kind; another kind changes nothing.
    pub fn set(&mut self, i: usize, literal: Literal) {
        match (self, literal) {
            (Data::Float(xs), Literal::Float(x)) => xs[i] = x,
            (Data::Int(xs), Literal::Int(x)) => xs[i] = x,
            (Data::Bool(xs), Literal::Bool(x)) => xs[i] = x,
            _ => {}
        }
    }

    /// Whether the elements can be of that type.
    pub(super) fn holds(&self, ty: Ty) -> bool {
        match self {
            Data::Float(_) => ty.is_float(),
            Data::Int(_) => ty.is_int(),
            Data::Bool(_) => ty == Ty::Bool,
        }
    }

    /// The kind in words.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Data::Float(_) => "floats",
            Data::Int(_) => "integers",
            Data::Bool(_) => "bools",
        }
    }

    /// The elements at all indices of `sizes`, index 0 being `start` and the next index of dimension d being
    /// `strides[d]` elements further.
    pub(super) fn gather(&self, start: usize, sizes: &[usize], strides: &[usize]) -> Data {
        match self {
            Data::Float(xs) => Data::Float(gather(xs, start, sizes, strides)),
            Data::Int(xs) => Data::Int(gather(xs, start, sizes, strides)),
            Data::Bool(xs) => Data::Bool(gather(xs, start, sizes, strides)),
        }
    }
}

fn gather<T: Copy>(xs: &[T], start: usize, sizes: &[usize], strides: &[usize]) -> Vec<T> {
    let (Some((&size, sizes)), Some((&stride, strides))) = (sizes.split_last(), strides.split_last()) else {
        return vec![xs[start]];
    };
    let mut gathered = Vec::with_capacity(size * sizes.iter().product::<usize>());
    offsets(sizes, strides, |base| match (size, stride) {
        (0, _) => {}
        (_, 0) => gathered.extend(std::iter::repeat_n(xs[start + base], size)),
        (_, 1) => gathered.extend_from_slice(&xs[start + base..][..size]),
        _ => gathered.extend((0..size).map(|i| xs[start + base + i * stride])),
    });
    gathered
}

/// Calls `visit` with the offset of every index, in order.
fn offsets(sizes: &[usize], strides: &[usize], mut visit: impl FnMut(usize)) {
    if sizes.contains(&0) {
        return;
    }
    let mut index = vec![0; sizes.len()];
    let mut offset = 0;
    loop {
        visit(offset);
        let Some(d) = (0..sizes.len()).rev().find(|&d| index[d] + 1 < sizes[d]) else { return };
        for e in d + 1..sizes.len() {
            offset -= index[e] * strides[e];
            index[e] = 0;
        }
        index[d] += 1;
        offset += strides[d];
    }
}
