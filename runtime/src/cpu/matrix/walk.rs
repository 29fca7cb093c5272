//! The walk of a group along the time, lane by lane.
//!
//! Where recurrences run in both directions, as in a gradient, those of one direction go first and keep their states before every
//! [`INTERVAL`] steps. The others then go back, an interval at a time: in each the states of the first are computed again and kept, and
//! everything that reads states is computed beside them. So there are never more than an interval's states of one lane for each
//! thread, and one state for each interval.

use crate::cpu::CpuError;
use crate::cpu::simd::simd;
use crate::room::repeated;

use super::code::{Code, Input, Instruction, Map, Operand, Part, Place};
use super::group::Kind;
use super::loops::{FACTORS, Real, Summing, View, map, product, select, sum};
use super::step::{Added, Step, Term};

/// States are kept before so many steps.
pub(super) const INTERVAL: usize = 64;

/// A tensor that a group reads.
pub(super) struct Import<'a, T> {
    pub(super) data: &'a [T],
    /// How far apart neighbours lie along each lane axis, and along the time.
    pub(super) lanes: Vec<usize>,
    pub(super) time: usize,
    /// The elements of one step.
    pub(super) len: usize,
}

/// The code and the sizes of a walk, which all lanes share.
pub(super) struct Walk<'a, T> {
    pub(super) code: &'a Code,
    pub(super) imports: Vec<Import<'a, T>>,
    pub(super) times: usize,
    /// The sizes of the matrices' axes.
    pub(super) size: (usize, usize),
    pub(super) ordered: bool,
    /// Which ends are at the last index of the time.
    pub(super) is_last: Vec<bool>,
}

/// The outputs of a lane.
pub(super) struct Written<'w, T> {
    /// All times of each export.
    pub(super) exports: Vec<&'w mut [T]>,
    pub(super) ends: Vec<&'w mut [T]>,
}

/// The memory of a thread.
pub(super) struct Machine<'a, T> {
    walk: &'a Walk<'a, T>,
    registers: Vec<Vec<T>>,
    states: Vec<Vec<T>>,
    before: Vec<Vec<T>>,
    reads: Vec<Vec<T>>,
    /// Of families that are computed again, the states of an interval, and where in it the step is.
    kept: Vec<Vec<T>>,
    place: Option<usize>,
    /// Where the imports of the lane begin.
    bases: Vec<usize>,
    /// The families that go first and are computed again.
    first: Vec<usize>,
    /// The instructions that give them, and all others.
    again: Vec<Instruction>,
    rest: Vec<Instruction>,
}

impl<'a, T: Real> Machine<'a, T> {
    pub(super) fn new(walk: &'a Walk<'a, T>) -> Result<Machine<'a, T>, CpuError> {
        let code = walk.code;
        let (length, width) = walk.size;
        let size = |kind: Kind| match kind {
            Kind::Number => 1,
            Kind::Along => length,
            Kind::Across => width,
            Kind::Whole | Kind::Square => length * width,
        };
        let zeros = |n: usize| repeated(T::ZERO, n);
        let state = || code.families.iter().map(|_| zeros(length * width)).collect::<Result<Vec<_>, _>>();
        let reverse = code.families.first().is_some_and(|family| family.scan.reverse);
        let first: Vec<usize> =
            (0..code.families.len()).filter(|f| code.families[*f].scan.reverse == reverse).collect();
        let first = if first.len() == code.families.len() { vec![] } else { first };
        let is_rest = |step: &&Instruction| !matches!(step, Instruction::Step(f) if first.contains(f));
        let kept = |f: usize| if first.contains(&f) { zeros((INTERVAL + 1) * length * width) } else { Ok(vec![]) };
        Ok(Machine {
            walk,
            registers: code.registers.iter().map(|kind| zeros(size(*kind))).collect::<Result<_, _>>()?,
            states: state()?,
            before: state()?,
            reads: vec![],
            kept: (0..code.families.len()).map(kept).collect::<Result<_, _>>()?,
            place: None,
            bases: vec![],
            again: code.only(&first),
            rest: code.steps.iter().filter(is_rest).cloned().collect(),
            first,
        })
    }

    /// Walks one lane.
    pub(super) fn run(&mut self, lane: &[usize], written: &mut Written<'_, T>) -> Result<(), CpuError> {
        let base = |import: &Import<'_, T>| lane.iter().zip(&import.lanes).map(|(i, stride)| i * stride).sum();
        self.bases = self.walk.imports.iter().map(base).collect();
        let all: Vec<usize> = (0..self.states.len()).collect();
        self.begin(&all);
        if self.first.is_empty() {
            for visit in 0..self.walk.times {
                self.rest(self.time(visit, 0), written);
            }
            return Ok(());
        }
        let marks = self.marks()?;
        let intervals = self.walk.times.div_ceil(INTERVAL);
        for interval in (0..intervals).rev() {
            let start = interval * INTERVAL;
            let count = INTERVAL.min(self.walk.times - start);
            self.again(&marks, interval, count);
            for place in (0..count).rev() {
                self.place = Some(place);
                let time = self.time(start + place, self.first[0]);
                self.rest(time, written);
            }
            self.place = None;
        }
        Ok(())
    }

    /// The time of a visit in the direction of a family.
    fn time(&self, visit: usize, family: usize) -> usize {
        if self.walk.code.families[family].scan.reverse { self.walk.times - 1 - visit } else { visit }
    }

    /// Families begin at their initial states.
    fn begin(&mut self, families: &[usize]) {
        let width = self.walk.size.1;
        for f in families {
            let mut state = std::mem::take(&mut self.states[*f]);
            let init = self.view(self.walk.code.families[*f].init, 0);
            let size = self.walk.size;
            if width > 0 {
                product(&mut state, Kind::Whole, &[init], false, size);
            }
            self.states[*f] = state;
        }
    }

    /// The states of the first families before every interval.
    fn marks(&mut self) -> Result<Vec<T>, CpuError> {
        let (times, len) = (self.walk.times, self.walk.size.0 * self.walk.size.1);
        let mut marks = repeated(T::ZERO, times.div_ceil(INTERVAL) * self.first.len() * len)?;
        let mut next = marks.chunks_mut(len.max(1));
        let again = std::mem::take(&mut self.again);
        for visit in 0..times {
            if visit % INTERVAL == 0 {
                for f in &self.first {
                    next.next().into_iter().for_each(|mark| mark.copy_from_slice(&self.states[*f][..mark.len()]));
                }
            }
            let time = self.time(visit, self.first[0]);
            again.iter().for_each(|step| self.step(step, time));
        }
        self.again = again;
        Ok(marks)
    }

    /// Computes the states of the first families in an interval again.
    fn again(&mut self, marks: &[T], interval: usize, count: usize) {
        let (len, start) = (self.walk.size.0 * self.walk.size.1, interval * INTERVAL);
        for (k, f) in self.first.clone().into_iter().enumerate() {
            self.states[f].copy_from_slice(&marks[(interval * self.first.len() + k) * len..][..len]);
        }
        let again = std::mem::take(&mut self.again);
        for place in 0..=count {
            for f in &self.first {
                self.kept[*f][place * len..][..len].copy_from_slice(&self.states[*f]);
            }
            if place < count {
                let time = self.time(start + place, self.first[0]);
                again.iter().for_each(|step| self.step(step, time));
            }
        }
        self.again = again;
    }

    /// Everything but the steps of the first families, and what is stored.
    fn rest(&mut self, time: usize, written: &mut Written<'_, T>) {
        let rest = std::mem::take(&mut self.rest);
        rest.iter().for_each(|step| self.step(step, time));
        self.rest = rest;
        let code = self.walk.code;
        for (operand, tensor) in code.exports.iter().zip(&mut written.exports) {
            let len = tensor.len() / self.walk.times;
            self.store(*operand, time, &mut tensor[time * len..][..len]);
        }
        for ((operand, tensor), is_last) in code.ends.iter().zip(&mut written.ends).zip(&self.walk.is_last) {
            if time == if *is_last { self.walk.times - 1 } else { 0 } {
                self.store(*operand, time, tensor);
            }
        }
    }

    fn store(&self, operand: Operand, time: usize, into: &mut [T]) {
        let view = self.view(operand, time);
        match view.kind {
            Kind::Number => into.fill(view.number),
            _ => into.copy_from_slice(&view.data[..into.len()]),
        }
    }

    /// An operand at a time.
    #[inline(always)]
    fn view(&self, operand: Operand, time: usize) -> View<'_, T> {
        let len = self.walk.size.0 * self.walk.size.1;
        let is_first = |f: usize| self.place.filter(|_| self.first.contains(&f));
        let data = match operand.place {
            Place::Const(x) => return View { kind: Kind::Number, data: &[], number: T::of(x) },
            Place::Register(k) => &self.registers[k],
            Place::Import(k) => {
                let import = &self.walk.imports[k];
                &import.data[self.bases[k] + time * import.time..][..import.len]
            }
            Place::State(f) => match is_first(f) {
                Some(place) => &self.kept[f][(place + 1) * len..][..len],
                None => &self.states[f],
            },
            Place::Before(f) => match is_first(f) {
                Some(place) => &self.kept[f][place * len..][..len],
                None => &self.before[f],
            },
        };
        View { kind: operand.kind, data, number: data.first().copied().unwrap_or(T::ZERO) }
    }

    fn views(&self, operands: &[Operand], time: usize) -> [View<'_, T>; FACTORS] {
        let mut views = [View { kind: Kind::Number, data: &[], number: T::ONE }; FACTORS];
        views.iter_mut().zip(operands).for_each(|(view, operand)| *view = self.view(*operand, time));
        views
    }

    fn step(&mut self, step: &Instruction, time: usize) {
        let (to, size, ordered) = match step {
            Instruction::Step(family) => return self.family(*family, time),
            Instruction::Product { to, .. } | Instruction::Map { to, .. } => (*to, self.walk.size, self.walk.ordered),
            Instruction::Select { to, .. } | Instruction::Sum { to, .. } => (*to, self.walk.size, self.walk.ordered),
        };
        let mut out = std::mem::take(&mut self.registers[to]);
        let kind = self.walk.code.registers[to];
        match step {
            Instruction::Product { factors, negative, .. } => {
                let views = self.views(factors, time);
                simd(
                    #[inline(always)]
                    || product(&mut out, kind, &views[..factors.len()], *negative, size),
                );
            }
            Instruction::Map { map: function, operands, .. } => {
                let views = operands.map(|operand| self.view(operand, time));
                mapped(&mut out, kind, *function, views, size);
            }
            Instruction::Select { operands, .. } => {
                let views = operands.map(|operand| self.view(operand, time));
                simd(
                    #[inline(always)]
                    || select(&mut out, kind, views, size),
                );
            }
            Instruction::Sum { factors, negative, along, .. } => {
                let views = self.views(factors, time);
                let how = Summing { negative: *negative, along: *along, ordered };
                simd(
                    #[inline(always)]
                    || sum(&mut out, &views[..factors.len()], how, size),
                );
            }
            Instruction::Step(_) => {}
        }
        self.registers[to] = out;
    }

    fn family(&mut self, f: usize, time: usize) {
        let family = &self.walk.code.families[f];
        let (mut state, mut reads) = (std::mem::take(&mut self.states[f]), std::mem::take(&mut self.reads));
        if family.keeps_before {
            self.before[f].copy_from_slice(&state);
        }
        if family.reset.is_some_and(|reset| self.view(reset, time).number != T::ZERO) {
            state.fill(T::ZERO);
        }
        let term = |part: &Part| match *part {
            Part::Pair { column, row } => Term::Pair { column: self.view(column, time), row: self.view(row, time) },
            Part::Dense { matrix, transposed } => Term::Dense { matrix: self.view(matrix, time), transposed },
        };
        let step = Step {
            decay: family.decay.map(|decay| self.view(decay, time)),
            terms: family.parts.iter().map(term).collect(),
            added: match family.input {
                Input::Value(value) => Added::Value(self.view(value, time)),
                Input::Outer(a, b) => Added::Outer(self.view(a, time), self.view(b, time)),
            },
            size: self.walk.size,
        };
        simd(
            #[inline(always)]
            || step.run(&mut state, &mut reads),
        );
        (self.states[f], self.reads) = (state, reads);
    }
}

/// A map of two views.
fn mapped<T: Real>(out: &mut [T], kind: Kind, function: Map, views: [View<'_, T>; 2], size: (usize, usize)) {
    simd(
        #[inline(always)]
        || match function {
            Map::Add => map(out, kind, views, size, T::add),
            Map::Sub => map(out, kind, views, size, T::sub),
            Map::Div => map(out, kind, views, size, T::div),
        },
    );
}
