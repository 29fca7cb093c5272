//! Shifts along the scanned axis: the elements that they keep are a part of the state.
//!
//! The step of x\[t − n\] reads x as it was n times before. A shift by 1 whose `fill` is a parameter says by which parameter that
//! element comes in, and the last x is what goes out. Any other shift, whose `fill` is a constant, gets parameters and outputs of
//! its own: `x_before_1` to `x_before_n` and `x_last_1` to `x_last_n`, the former with the constant as default.

use std::collections::{HashMap, HashSet};

use crate::elem::{Elem, Ty};
use crate::ir::{Axis, Literal, Op, Program, Value};

use super::states::param;
use super::{State, StepError};

/// How many elements a shift may keep.
const MOST: i64 = 64;

/// A value whose last elements a step is given.
pub(super) struct Delay {
    /// The value.
    pub(super) value: Value,
    /// Each element before the first.
    pub(super) fill: Literal,
    /// How many elements are kept.
    pub(super) count: usize,
    /// The prefix of the names of its parameters and outputs.
    name: String,
    /// The type that they store.
    pub(super) elem: Elem,
    /// Their axes, in the numbers of the whole program.
    pub(super) axes: Vec<Axis>,
}

/// The value in one step of a shift along the scanned axis.
pub(super) enum Read {
    /// The value itself.
    Now(Value),
    /// The value that `fill` is.
    Given(Value),
    /// The element so many times before of the delay of that index.
    Before(usize, usize),
}

impl Delay {
    /// The parameter and the output of the element `k` times before, k = 1, 2, …
    pub(super) fn state(&self, k: usize) -> State {
        State { param: format!("{}_before_{k}", self.name), output: format!("{}_last_{k}", self.name) }
    }
}

/// The delays of all shifts along an axis that do not say where their elements come in.
pub(super) fn delays(program: &Program, axis: Axis) -> Result<Vec<Delay>, StepError> {
    let (mut delays, mut names): (Vec<Delay>, _) = (vec![], Names::default());
    for node in &program.nodes {
        let Op::Shift { axis: along, by, value, fill } = node.op else { continue };
        if along != axis || is_given(program, by, fill) {
            continue;
        }
        let count = distance(program, axis, by)?;
        let Some(fill) = constant(program, fill) else {
            return Err(StepError::Fill { axis: program.axis_name(axis).to_owned(), by });
        };
        match find(&delays, value, fill) {
            Some(at) => delays[at].count = count.max(delays[at].count),
            None if count > 0 => delays.push(delay(program, axis, Kept { value, fill, count }, &mut names)),
            None => {}
        }
    }
    Ok(delays)
}

/// Finds the value in one step of a shift of a value along the scanned axis.
pub(super) fn read(program: &Program, delays: &[Delay], by: i64, value: Value, fill: Value) -> Read {
    if by == 0 {
        return Read::Now(value);
    }
    match constant(program, fill).and_then(|fill| find(delays, value, fill)) {
        Some(at) => Read::Before(at, by as usize),
        None => Read::Given(fill),
    }
}

/// Whether a parameter is the element that a shift keeps.
pub(super) fn is_given(program: &Program, by: i64, fill: Value) -> bool {
    by == 1 && param(program, fill).is_some()
}

/// A value without broadcasts.
pub(super) fn unbroadcast(program: &Program, mut value: Value) -> Value {
    while let Op::Broadcast(from) = program.node(value).op {
        value = from;
    }
    value
}

fn distance(program: &Program, axis: Axis, by: i64) -> Result<usize, StepError> {
    let axis = || program.axis_name(axis).to_owned();
    match by {
        ..0 => Err(StepError::Ahead { axis: axis(), by }),
        0..=MOST => Ok(by as usize),
        _ => Err(StepError::Far { axis: axis(), by, most: MOST }),
    }
}

fn constant(program: &Program, value: Value) -> Option<Literal> {
    match program.node(unbroadcast(program, value)).op {
        Op::Const(literal) => Some(literal),
        _ => None,
    }
}

fn find(delays: &[Delay], value: Value, fill: Literal) -> Option<usize> {
    delays.iter().position(|delay| delay.value == value && delay.fill == fill)
}

/// The last elements of a value, as [`Delay`] has them.
struct Kept {
    value: Value,
    fill: Literal,
    count: usize,
}

fn delay(program: &Program, axis: Axis, Kept { value, fill, count }: Kept, names: &mut Names) -> Delay {
    let of = param(program, value);
    let name = of.map_or("shift", |param| &param.name);
    let stored = match program.node(unbroadcast(program, value)).op {
        Op::Param(k) => program.params.get(k as usize).filter(|param| param.or.is_none()),
        _ => None,
    };
    let stored = stored.filter(|param| !param.elem.is_float() || is_small(fill)).map(|param| param.elem);
    let elem = stored.unwrap_or_else(|| exact(program.node(value).ty));
    let ordered = of.map_or(vec![], |param| param.axes.clone());
    let others = program.node(value).axes.iter().filter(|axis| !ordered.contains(axis));
    let axes = ordered.iter().copied().chain(others).filter(|one| *one != axis).collect();
    Delay { value, fill, count, name: names.free(program, name), elem, axes }
}

/// The names that delays have so far.
#[derive(Default)]
struct Names {
    known: HashSet<String>,
    /// For each name that was asked for, the number that is tried next.
    next: HashMap<String, usize>,
}

impl Names {
    /// A name that nothing has, or that name with the first number behind it that makes it so.
    fn free(&mut self, program: &Program, wanted: &str) -> String {
        let next = self.next.entry(wanted.to_owned()).or_insert(1);
        loop {
            let name = if *next == 1 { wanted.to_owned() } else { format!("{wanted}{next}") };
            *next += 1;
            if !is_taken(program, &name) && self.known.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// The type that stores values of a type as they are.
fn exact(ty: Ty) -> Elem {
    match ty {
        Ty::Call => Elem::State,
        ty => ty.elem().unwrap_or(Elem::State),
    }
}

/// Whether a number is the same in half precision.
fn is_small(literal: Literal) -> bool {
    match literal {
        Literal::Float(x) => !x.is_finite() || x.fract() == 0.0 && x.abs() <= 256.0,
        _ => true,
    }
}

/// Whether a parameter, an output or an axis has a name that a delay of that name would use.
fn is_taken(program: &Program, delay: &str) -> bool {
    let names = program.params.iter().map(|p| &p.name).chain(program.outputs.iter().map(|o| &o.name));
    let mut names = names.chain(&program.axes);
    names.any(|name| {
        let rest = name.strip_prefix(delay).unwrap_or_default();
        rest.starts_with("_before_") || rest.starts_with("_last_")
    })
}
