//! Elements and states of an associative operator in registers: combining them within a thread and across a warp,
//! and turning them into message words.

use super::point;
use crate::build::Builder;
use crate::tile::{Operand, Reg, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Operator};

/// The fields of an element or state, one operand each.
pub type Fields = Vec<Operand>;

/// The states around a step of a scan.
#[derive(Clone, Copy)]
pub struct AroundStep<'a> {
    /// The state before the step's element.
    pub before: &'a [Operand],
    /// The state after it.
    pub after: &'a [Operand],
}

/// A monoid in registers: elements have every field; a *state* has only those that outputs need.
///
/// For the affine operator the state is b alone: applying an element to it is one fused multiply-add.
#[derive(Clone)]
pub struct Monoid<'p> {
    /// The operator.
    pub operator: &'p Operator,
    /// Which fields a state has.
    pub live: Vec<bool>,
}

impl<'p> Monoid<'p> {
    /// The monoid of an operator whose states are read through the fields in `used`.
    pub fn new(operator: &'p Operator, used: &[bool]) -> Monoid<'p> {
        let n = operator.fields.len();
        let (dependencies, mut live) = (operator.dependencies(), used.to_vec());
        for _ in 0..n {
            for k in 0..n {
                live[k] |= (0..n).any(|field| live[field] && dependencies[field] >> k & 1 == 1);
            }
        }
        Monoid { operator, live }
    }

    /// The types of an element's fields.
    pub fn types(&self) -> Vec<Ty> {
        self.operator.fields.iter().map(|f| f.ty).collect()
    }

    /// The types of a state's fields.
    pub fn state_types(&self) -> Vec<Ty> {
        self.keep(&self.types())
    }

    /// The identity element.
    pub fn identity(&self) -> Fields {
        let fields = self.operator.fields.iter().zip(&self.operator.identity);
        fields.map(|(field, literal)| Operand::Const(field.ty, constant(field.ty, *literal))).collect()
    }

    /// The identity state.
    pub fn identity_state(&self) -> Fields {
        self.keep(&self.identity())
    }

    /// The entries of the fields that a state has.
    pub fn keep<T: Clone>(&self, all: &[T]) -> Vec<T> {
        all.iter().zip(&self.live).filter(|(_, live)| **live).map(|(x, _)| x.clone()).collect()
    }

    /// The position of a field in a state.
    pub fn slot(&self, field: u32) -> usize {
        self.live[..field as usize].iter().filter(|live| **live).count()
    }

    /// l ⊕ r.
    pub fn combine(&self, b: &mut Builder, l: &[Operand], r: &[Operand]) -> Fields {
        let some = |x: &[Operand]| x.iter().map(|v| Some(*v)).collect::<Vec<_>>();
        let need = vec![true; l.len()];
        point::combine(b, self.operator, &some(l), &some(r), &need).into_iter().flatten().collect()
    }

    /// The state after an element: state ⊕ element.
    pub fn apply(&self, b: &mut Builder, state: &[Operand], element: &[Operand]) -> Fields {
        let mut fields = state.iter();
        let l: Vec<_> = self.live.iter().map(|live| if *live { fields.next().copied() } else { None }).collect();
        let r: Vec<_> = element.iter().map(|v| Some(*v)).collect();
        point::combine(b, self.operator, &l, &r, &self.live).into_iter().flatten().collect()
    }

    /// The combination of elements, left to right.
    pub fn fold(&self, b: &mut Builder, elements: &[Fields]) -> Fields {
        let mut rest = elements.iter();
        let first = rest.next().cloned().unwrap_or_else(|| self.identity());
        rest.fold(first, |sum, e| self.combine(b, &sum, e))
    }

    /// Each lane's inclusive scan over lanes that are `stride` apart, in groups of `count` (a power of two):
    /// lane k·stride + c is position k of column c. `position` is k, `i32`; from the last one when `reverse`.
    pub fn warp_scan(&self, b: &mut Builder, x: Fields, lanes: &WarpAxis) -> Fields {
        let (mut x, mut distance) = (x, 1);
        while distance < lanes.count {
            let step = Operand::i32((distance * lanes.stride) as i32);
            let before: Fields = x.iter().map(|v| b.shuffle(lanes.backward(), *v, step)).collect();
            let both = self.combine(b, &before, &x);
            let inside = lanes.has_before(b, distance);
            x = select(b, inside, &both, &x);
            distance *= 2;
        }
        x
    }

    /// The combination over all positions, in every lane.
    pub fn warp_reduce(&self, b: &mut Builder, x: Fields, lanes: &WarpAxis) -> Fields {
        let (mut x, mut distance) = (x, 1);
        while distance < lanes.count {
            let bit = b.binary(Binary::And, lanes.position, distance);
            let upper = b.ne(bit, 0);
            let step = Operand::i32((distance * lanes.stride) as i32);
            let other: Fields = x.iter().map(|v| b.shuffle(Shuffle::Xor, *v, step)).collect();
            let (first, second) = if lanes.reverse { (&x, &other) } else { (&other, &x) };
            let l = select(b, upper, first, second);
            let r = select(b, upper, second, first);
            x = self.combine(b, &l, &r);
            distance *= 2;
        }
        x
    }

    /// The exclusive scan that belongs to an inclusive one: the identity at the first position.
    pub fn warp_shift(&self, b: &mut Builder, inclusive: &[Operand], lanes: &WarpAxis) -> Fields {
        let step = Operand::i32(lanes.stride as i32);
        let before: Fields = inclusive.iter().map(|v| b.shuffle(lanes.backward(), *v, step)).collect();
        let inside = lanes.has_before(b, 1);
        select(b, inside, &before, &self.identity())
    }
}

/// A time axis laid over the lanes of a warp.
#[derive(Clone, Copy)]
pub struct WarpAxis {
    /// The lane's position, `i32`.
    pub position: Operand,
    /// Positions, a power of two.
    pub count: u32,
    /// Lanes between neighbouring positions.
    pub stride: u32,
    /// Whether the last position comes first.
    pub reverse: bool,
}

impl WarpAxis {
    /// The shuffle that looks at earlier positions.
    fn backward(&self) -> Shuffle {
        if self.reverse { Shuffle::Down } else { Shuffle::Up }
    }

    /// Whether there is a position `distance` earlier.
    fn has_before(&self, b: &mut Builder, distance: u32) -> Operand {
        if self.reverse { b.lt(self.position, self.count - distance) } else { b.ge(self.position, distance) }
    }

    /// The position that comes last.
    pub fn last(&self) -> u32 {
        if self.reverse { 0 } else { self.count - 1 }
    }
}

/// `if condition { a } else { b }`, field by field.
pub fn select(b: &mut Builder, condition: Operand, x: &[Operand], y: &[Operand]) -> Fields {
    x.iter().zip(y).map(|(x, y)| b.select(condition, *x, *y)).collect()
}

/// Assigns values to registers as if all at once: a new value may be another register's old one.
pub fn assign(b: &mut Builder, regs: &[Reg], values: &[Operand]) {
    let fresh = b.vars(values);
    for (reg, value) in regs.iter().zip(fresh) {
        b.assign(*reg, value.into());
    }
}

/// A literal as the constant of a field's type.
fn constant(ty: Ty, literal: Literal) -> Literal {
    match (ty, literal) {
        (t, Literal::Int(i)) if t.is_float() => Literal::Float(i as f64),
        (t, Literal::Float(x)) if t.is_int() => Literal::Int(x as i64),
        _ => literal,
    }
}

/// The message words that fields of these types take.
pub fn words(types: &[Ty]) -> u32 {
    types.iter().map(|ty| width(*ty)).sum()
}

fn width(ty: Ty) -> u32 {
    if matches!(ty, Ty::F64 | Ty::I64 | Ty::U64) { 2 } else { 1 }
}

/// The fields as message words, `u32`.
pub fn to_words(b: &mut Builder, fields: &[Operand]) -> Vec<Operand> {
    let mut words = vec![];
    for field in fields {
        match b.ty(*field) {
            Ty::Bool => words.push(b.select(*field, Operand::u32(1), Operand::u32(0))),
            Ty::F32 | Ty::I32 | Ty::U32 => words.push(b.bits(Ty::U32, *field)),
            _ => {
                let wide = b.bits(Ty::U64, *field);
                let high = b.binary(Binary::Shr, wide, Operand::Const(Ty::U64, Literal::Int(32)));
                let low = b.binary(Binary::And, wide, Operand::Const(Ty::U64, Literal::Int(0xffff_ffff)));
                words.extend([low, high].map(|half| b.convert(Ty::U32, half)));
            }
        }
    }
    words
}

/// The fields of these types from message words.
pub fn from_words(b: &mut Builder, types: &[Ty], words: &[Operand]) -> Fields {
    let mut rest = words.iter().copied();
    let mut next = || rest.next().unwrap_or(Operand::u32(0));
    let mut fields = vec![];
    for ty in types {
        fields.push(match ty {
            Ty::Bool => {
                let word = next();
                b.ne(word, 0)
            }
            Ty::F32 | Ty::I32 | Ty::U32 => {
                let word = next();
                b.bits(*ty, word)
            }
            _ => {
                let (low, high) = (next(), next());
                let [low, high] = [low, high].map(|half| b.convert(Ty::U64, half));
                let high = b.binary(Binary::Shl, high, Operand::Const(Ty::U64, Literal::Int(32)));
                let wide = b.binary(Binary::Or, high, low);
                b.bits(*ty, wide)
            }
        });
    }
    fields
}
