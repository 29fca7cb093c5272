//! Two scans in opposite directions over one axis, with the sums of maps of their states, as one stage.
//!
//! The gradient of a program that scans along T and sums its states away recomputes the states h and scans the
//! cotangents λ the other way, with the same decay seen one step earlier:
//!
//! ```text
//! h[t] = h[t−1] ⊕ e[t]        λ[t] = g[t] + d[t+1]·λ[t+1]
//! ```
//!
//! Its outputs are sums of maps of both: over the state axis N, over the rows of a block D, over time T, and the
//! cotangent d\[0\]·λ\[0\] of the initial state. All of them are taken where h and λ are, so neither is stored. Every other
//! value of the program is computed from those by ordinary stages, which [`cut`](super::cut::cut) makes.

mod first_stage;

use std::collections::{BTreeMap, BTreeSet};

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Program, Value};
use oplus_dsl::walk::follow;

use super::ahead::Ahead;
use super::cut::prepare;
use super::error::CutError;
use super::factors::Matrices;
use super::flags::flagged;
use super::opposite::{Pair, bare_decays, is_zero, narrow, pairs, shifted_decay, sum_over, total};
use super::reduction::is_sum;
use super::time_invariant::{inward, varying};
use super::{Cut, Stage};

/// A program as a backward-scan stage and the stages that finish its sums; `None` if it has no two such scans.
pub fn cut_backward_scan(program: &Program) -> Result<Option<Cut>, CutError> {
    Ways::of(&prepare(program)?, Sums::OfStates)?.cuts().next().transpose()
}

/// The cuts with a backward-scan stage that takes all sums over rows and over outer axes: one for each axis that may be the state axis.
/// In place of Σ λ\[t\]·h\[t−1\] over all of a state the stage gives decay\[t\] times that sum, the cotangent of the decay's logarithm.
pub fn cut_matrix_backward(program: &Program) -> Result<Vec<Cut>, CutError> {
    Ways::of(&prepare(program)?, Sums::All)?.cuts().collect()
}

/// The first cut of a prepared program with a backward-scan stage of which no stage is refused; where there is none, the reason why the
/// first cut is refused; `None` if there is no such cut. Stages are made only up to the first that is refused.
pub(super) fn first_taken<R>(
    program: &Program,
    sums: Sums,
    refusal: impl Fn(&Stage) -> Option<R>,
) -> Result<Option<Result<Cut, R>>, CutError> {
    let (ways, mut first) = (Ways::of(program, sums)?, None);
    for outline in ways.outlines() {
        match ways.cut(outline, &refusal)? {
            Err(refused) if sums == Sums::All => _ = first.get_or_insert(refused),
            cut => return Ok(Some(cut)),
        }
    }
    Ok(first.map(Err))
}

/// The ways to cut a program with a backward-scan stage.
struct Ways {
    sums: Sums,
    /// The program that writes the flags of packed sequences.
    flags: Option<Ahead>,
    all: Vec<Way>,
}

/// A pair of opposite scans for a backward-scan stage.
struct Way {
    program: Program,
    pair: Pair,
    state: Axis,
    /// The values that are computed before the stage.
    ahead: Option<Ahead>,
}

impl Ways {
    fn of(program: &Program, sums: Sums) -> Result<Ways, CutError> {
        let mut all = vec![];
        if !has_opposite_scans(program) {
            return Ok(Ways { sums, flags: None, all });
        }
        let (program, flags) = flagged(varying(program)?);
        for (number, pair) in pairs(&program).into_iter().enumerate() {
            let over = pair.axes.without(pair.time);
            for state in over.iter().collect::<Vec<_>>().into_iter().rev() {
                let (program, ahead) = match pair.row(state).filter(|_| sums == Sums::All) {
                    Some(row) => whole(&program, number, [state, row]),
                    None => (program.clone(), None),
                };
                if let Some(pair) = pairs(&program).into_iter().nth(number) {
                    all.push(Way { program, pair, state, ahead });
                }
            }
        }
        Ok(Ways { sums, flags, all })
    }

    /// The outlines that can be a backward scan, by how many outputs must be computed before; the fewest first.
    fn outlines(&self) -> Vec<Outline<'_>> {
        let mut outlines: Vec<Outline<'_>> = self.all.iter().filter_map(|way| Outline::of(way, self.sums)).collect();
        outlines.sort_by_key(|outline| outline.way.ahead.as_ref().map_or(0, Ahead::outputs));
        outlines
    }

    /// A cut, or why one of its stages is refused.
    fn cut<R>(&self, outline: Outline<'_>, refusal: &impl Fn(&Stage) -> Option<R>) -> Result<Result<Cut, R>, CutError> {
        let mut before = vec![];
        for ahead in self.flags.iter().chain(&outline.way.ahead) {
            let own = ahead.cut()?;
            if let Some(refused) = own.stages.iter().find_map(refusal) {
                return Ok(Err(refused));
            }
            before.push((ahead, own));
        }
        let stage = outline.first_stage()?;
        if let Some(refused) = refusal(&stage.stage) {
            return Ok(Err(refused));
        }
        let cut = outline.finished(stage)?;
        Ok(match cut.stages[1..].iter().find_map(refusal) {
            Some(refused) => Err(refused),
            None => Ok(before.into_iter().rev().fold(cut, |cut, (ahead, own)| ahead.before(own, cut))),
        })
    }

    fn cuts(&self) -> impl Iterator<Item = Result<Cut, CutError>> {
        let never = |_: &Stage| None::<std::convert::Infallible>;
        self.outlines().into_iter().filter_map(move |outline| self.cut(outline, &never).map(Result::ok).transpose())
    }
}

/// Whether some axis is scanned both ways.
fn has_opposite_scans(program: &Program) -> bool {
    let along = |own: bool| -> AxisSet {
        let scanned = |op: &Op| match op {
            Op::Scan { axis, reverse, .. } if *reverse == own => Some(*axis),
            _ => None,
        };
        program.nodes.iter().filter_map(|node| scanned(&node.op)).collect()
    };
    along(true).iter().any(|axis| along(false).contains(axis))
}

/// The program for a stage of matrices over these two axes, and the values that are computed before it. `number` is that of the pair
/// of scans.
fn whole(program: &Program, number: usize, axes: [Axis; 2]) -> (Program, Option<Ahead>) {
    let program = inward(program, axes);
    let pairs = pairs(&program);
    let Pair { forward, back, time, .. } = &pairs[number];
    Matrices { forward, back: *back, time: *time, axes }.divided(&program)
}

/// The sums that a backward-scan stage takes beside those over the state axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sums {
    /// Over rows of maps of states, and over time.
    OfStates,
    /// Over rows of maps of states or of contractions, and over outer axes.
    All,
}

/// The role of a value in a backward-scan stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// A map of parameters.
    Point,
    /// A map of states.
    State,
    /// A map of sums over the state axis.
    Row,
    /// A sum over rows or time, or the cotangent of the initial state.
    Kept,
    /// None of these.
    Other,
}

/// A program divided into a backward-scan stage and the stages that read its outputs.
struct Outline<'p> {
    way: &'p Way,
    program: &'p Program,
    pair: &'p Pair,
    state: Axis,
    sums: Sums,
    levels: Vec<Level>,
    /// The program's outputs that the stage writes, by the values they have.
    direct: BTreeMap<usize, Value>,
    /// The values that the rest of the program reads.
    exports: BTreeSet<Value>,
}

impl<'p> Outline<'p> {
    /// The outline of a way; `None` where some output needs the states themselves.
    fn of(way: &'p Way, sums: Sums) -> Option<Outline<'p>> {
        let Way { program, pair, state, .. } = way;
        let (levels, direct, exports) = (vec![], BTreeMap::new(), BTreeSet::new());
        let mut outline = Outline { way, program, pair, state: *state, sums, levels, direct, exports };
        for i in 0..program.nodes.len() {
            let level = outline.level(Value(i as u32));
            outline.levels.push(level);
        }
        for (k, output) in program.outputs.iter().enumerate() {
            let value = outline.bare(output.value);
            let own: AxisSet = output.axes.iter().copied().collect();
            if outline.is_given(value) && program.node(value).axes == own {
                outline.direct.insert(k, value);
            } else {
                outline.visit(value)?;
            }
        }
        outline.first_sum().map(|_| outline)
    }

    fn row(&self) -> Option<Axis> {
        self.pair.row(self.state)
    }

    fn rows(&self) -> AxisSet {
        self.pair.axes.without(self.state)
    }

    fn level(&self, value: Value) -> Level {
        let node = self.program.node(value);
        let of = |v: &Value| self.levels[v.0 as usize];
        match &node.op {
            Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => Level::Point,
            Op::Scan { .. } if value == self.pair.back || self.pair.forward.contains(&value) => Level::State,
            Op::Field(tuple, _) => of(tuple),
            Op::Reduce { axis, operator, elements } if is_sum(self.program.operator(*operator)) => {
                self.sum(*axis, elements[0])
            }
            Op::First { .. } | Op::Last { .. } if self.is_initial(value) => Level::Kept,
            Op::Binary(Binary::Mul, x, y) if self.sums == Sums::All && self.is_of_decay(*x, *y) => Level::Kept,
            op if op.is_map() => {
                let levels: Vec<Level> = op.operands().iter().map(of).collect();
                let only = |level: Level| levels.iter().all(|l| [Level::Point, level].contains(l));
                [Level::Point, Level::State, Level::Row].into_iter().find(|l| only(*l)).unwrap_or(Level::Other)
            }
            _ => Level::Other,
        }
    }

    fn sum(&self, axis: Axis, element: Value) -> Level {
        let axes = self.program.node(element).axes;
        if self.sums == Sums::All {
            return self.any_sum(axis, element);
        }
        match self.levels[element.0 as usize] {
            Level::State if axes != self.pair.axes => Level::Other,
            Level::State if axis == self.state => Level::Row,
            Level::State if axis == self.pair.time || Some(axis) == self.row() => Level::Kept,
            Level::Row | Level::Point if axis == self.pair.time && axes == self.rows() => Level::Kept,
            _ => Level::Other,
        }
    }

    /// The role of a sum in a stage that takes all sums: of states over the state axis or rows, of contractions over rows, of sums of
    /// states over outer axes.
    fn any_sum(&self, axis: Axis, element: Value) -> Level {
        let axes = self.program.node(element).axes;
        let is_outer = ![Some(self.state), Some(self.pair.time), self.row()].contains(&Some(axis));
        match self.levels[element.0 as usize] {
            Level::State if axes == self.pair.axes && axis == self.state => Level::Row,
            Level::State if axes == self.pair.axes && Some(axis) == self.row() => Level::Kept,
            Level::Row if axes == self.rows() && Some(axis) == self.row() => Level::Kept,
            Level::Kept if axis == self.state && Some(axes) == self.row().map(|row| self.pair.axes.without(row)) => {
                Level::Kept
            }
            // With decays of channels no block has the sums of several recurrences.
            Level::Kept if self.has_channels() => Level::Other,
            Level::Kept if is_outer && axes.contains(self.state) && axes.contains(self.pair.time) => Level::Kept,
            _ => Level::Other,
        }
    }

    /// Whether the decay differs along the state axis.
    fn has_channels(&self) -> bool {
        let Op::Scan { elements, .. } = &self.program.node(self.pair.back).op else { return false };
        self.program.node(elements[0]).axes.contains(self.state)
    }

    /// Whether a product is the decay times a sum over the axes that the decay lacks: rows and states, or rows alone.
    fn is_of_decay(&self, x: Value, y: Value) -> bool {
        let decay = shifted_decay(self.program, self.pair.back);
        let is_decay = |v: Value| decay.is_some_and(|d| bare_decays(self.program, d).contains(&v));
        let Some(row) = self.row() else { return false };
        [(x, y), (y, x)].into_iter().any(|(own, sum)| {
            let summed = if self.program.node(own).axes.contains(self.state) {
                sum_over(self.program, sum, row)
            } else {
                total(self.program, sum, [self.state, row])
            };
            is_decay(own) && summed.is_some()
        })
    }

    /// Whether a value is the cotangent of the initial state, d·λ at the end of the reverse scan.
    fn is_initial(&self, value: Value) -> bool {
        let Op::Scan { axis, init, reverse, .. } = &self.program.node(self.pair.back).op else { return false };
        let (inner, empty) = match &self.program.node(value).op {
            Op::First { axis: own, value, empty } if own == axis && *reverse => (*value, *empty),
            Op::Last { axis: own, value, empty } if own == axis && !*reverse => (*value, *empty),
            _ => return false,
        };
        let narrow = |v: Value| narrow(self.program, v);
        let decay = shifted_decay(self.program, self.pair.back).map(narrow);
        let cotangent = |v: Value| matches!(self.program.node(v).op, Op::Field(t, 1) if t == self.pair.back);
        let product = match self.program.node(inner).op {
            Op::Binary(Binary::Mul, x, y) => {
                (Some(narrow(x)) == decay && cotangent(y)) || (Some(narrow(y)) == decay && cotangent(x))
            }
            _ => false,
        };
        let is_zero = |v: Value| is_zero(self.program, v);
        product && init.get(1).map_or(is_zero(empty), |own| *own == empty || is_zero(*own) && is_zero(empty))
    }

    /// A value without conversions that change nothing.
    fn bare(&self, value: Value) -> Value {
        follow(value, |v| {
            let node = self.program.node(v);
            match node.op {
                Op::Convert(elem, inner) if Some(elem) == node.ty.elem() && self.program.node(inner).ty == node.ty => {
                    Some(inner)
                }
                _ => None,
            }
        })
    }

    /// Whether the stage can write a value.
    fn is_given(&self, value: Value) -> bool {
        let node = self.program.node(value);
        let tuple = node.ty == Ty::Tuple;
        match self.levels[value.0 as usize] {
            Level::Kept => !tuple,
            Level::Row => !tuple && node.axes == self.rows(),
            _ => false,
        }
    }

    /// Finds what the rest of the program reads beneath a value.
    fn visit(&mut self, value: Value) -> Option<()> {
        let (mut seen, mut open) = (BTreeSet::from([value]), vec![value]);
        while let Some(value) = open.pop() {
            if self.is_given(value) {
                self.exports.insert(value);
                continue;
            }
            match self.levels[value.0 as usize] {
                Level::State => return None,
                Level::Point => {}
                _ => open.extend(self.program.node(value).op.operands().into_iter().filter(|v| seen.insert(*v))),
            }
        }
        Some(())
    }

    /// A sum over the state axis, which the stage must have.
    fn first_sum(&self) -> Option<Value> {
        let given = self.direct.values().chain(&self.exports).copied();
        let needed = super::copy::beneath(self.program, given);
        let over = |v: &&Value| matches!(self.program.node(**v).op, Op::Reduce { axis, .. } if axis == self.state);
        // Where a stage takes both kinds, a sum of states comes before a sum of their sums: its axis is the state axis. Scans in both
        // directions take sums of states alone.
        let sums_of_states =
            |v: &&Value| self.sums != Sums::OfStates && over(v) && self.levels[v.0 as usize] == Level::Row;
        needed.iter().find(sums_of_states).or(needed.iter().find(over)).copied()
    }
}
