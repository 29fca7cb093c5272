//! Gradients of recurrences of matrices.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Program, Value};
use oplus_dsl::walk::{all, any};

use super::matrix::{
    Decay, MatrixRecurrence, StateAxes, StateField, axes_of, coefficient, decay_of, exponential, only_field,
};
use super::product::{Product, is};
use crate::stage::opposite::{sum_over, total};
use crate::stage::{Refusal, Stage};

/// A stage as the gradient of a recurrence of matrices: states S and their cotangents λ,
///
/// ```text
/// S[t] = decay[t]·S[t−1] + gain[t]·value[t]⊗key[t]        λ[t] = decay[t+1]·λ[t+1] + gain'[t]·cotangent[t]⊗query[t]
/// ```
///
/// and the sums of both that are the cotangents of value, key, query and of the decay's logarithm.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixRecurrenceBackward {
    /// The recurrence of the states: key and value.
    pub states: MatrixRecurrence,
    /// The recurrence of cotangents. Its key is the query, and its value the cotangent of the readout.
    pub cotangents: MatrixRecurrence,
    /// The outer axes that neither key nor query has: the heads that share them, over which a block sums; none where decays differ by
    /// channel.
    pub heads: AxisSet,
    /// The tuple of the sum over depth of key·λ times factors, if it is needed.
    pub contraction: Option<(Value, Vec<Value>)>,
    /// The gradient that each output of the stage is.
    pub outputs: Vec<Cotangent>,
}

/// The gradients that an output can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cotangent {
    /// A map of the sums over depth of key·λ, over time and width.
    Values,
    /// The sum over width and heads of gain·value·λ, over time and depth.
    Keys,
    /// The sum over width and heads of gain'·cotangent·S, over time and depth.
    Queries,
    /// The sum over width of a map of the sums over depth, over time: the tuple, and the value that is summed.
    Sum(Value, Value),
    /// The cotangent of the decay's logarithm, over time.
    Decay,
    /// The cotangents of the logarithms of decays per channel, over time and depth.
    Channels,
    /// The cotangent of the state before the first time.
    Initial,
}

impl Cotangent {
    /// Whether an output has a number for every time of a head.
    pub(crate) fn is_over_time(self) -> bool {
        matches!(self, Cotangent::Sum(..) | Cotangent::Decay)
    }
}

impl MatrixRecurrenceBackward {
    /// The form of a backward-scan stage, or what it lacks.
    pub(super) fn of(stage: &Stage) -> Result<MatrixRecurrenceBackward, Refusal> {
        let program = &stage.program;
        let scans = stage.opposite_scans().ok_or(Refusal::NoReadout)?;
        let (forward, back, depth) = (scans.forward, scans.back, scans.state);
        let tuple = forward.inclusive.or(forward.exclusive).ok_or(Refusal::NoReadout)?;
        let operator = program.operator(forward.operator);
        let not_affine = || Refusal::NotAffine { operator: operator.name.clone() };
        let field = only_field(program, tuple).ok_or_else(not_affine)?;
        let decay = coefficient(operator, field).ok_or_else(not_affine)?.decay(program, forward.elements)?;
        if decay != decay_of(program, scans.decay)? {
            return Err(Refusal::NoExponential);
        }
        let dual = back.inclusive.ok_or(Refusal::Exclusive)?;
        let dual_field = only_field(program, dual).ok_or_else(not_affine)?;
        let state = axes_of(program, tuple, field).without(forward.axis).without(depth);
        let name = |axis: Axis| program.axis_name(axis).to_owned();
        let width = state.iter().last().ok_or_else(|| Refusal::Vector { axis: name(depth) })?;
        let of_decay = decay.map_or(AxisSet::EMPTY, |d| d.axes(program));
        match (of_decay.contains(width), of_decay.contains(depth)) {
            (true, true) => return Err(Refusal::Diagonal { axes: [width, depth].map(name).join(" and ") }),
            (true, false) => return Err(Refusal::Channels { axis: name(width) }),
            (false, _) => {}
        }
        let axes = StateAxes { depth, width };
        let of_scan = |scan, state| MatrixRecurrence::of_scan(program, scan, state, axes, decay);
        let states = of_scan(&forward, StateField { tuple, field })?;
        let cotangents = of_scan(&back, StateField { tuple: dual, field: dual_field })?;
        if states.reverse || !cotangents.reverse {
            return Err(Refusal::Reverse);
        }
        match states.elem(program)? {
            elem if elem != cotangents.elem(program)? => return Err(Refusal::Type),
            Elem::Bf16 | Elem::F16 | Elem::F32 => {}
            _ => return Err(Refusal::Type),
        }
        let shared = [states.key, cotangents.key].map(|p| program.params[p as usize].axes.iter().copied().collect());
        let heads = match states.channels {
            true => AxisSet::EMPTY,
            false => states.outer.minus(shared[0]).minus(shared[1]).minus(stage.axis_of_sequences()),
        };
        let mut form = MatrixRecurrenceBackward { states, cotangents, heads, contraction: None, outputs: vec![] };
        form.contraction = form.contraction_of(stage)?;
        let kinds = program.outputs.iter().map(|output| form.kind(stage, output.value, stage.axes_of_values(output)));
        form.outputs = kinds.collect::<Option<_>>().ok_or_else(|| Refusal::NotQuery { axis: name(depth) })?;
        Ok(form)
    }

    /// The type of all factors.
    pub fn elem(&self, stage: &Stage) -> Elem {
        stage.program.params[self.states.key as usize].elem
    }

    /// The type of saved states and of weights. Only `bf16` among the types of 16 bits has the range of states; beside other factors
    /// they are in `tf32`.
    pub fn state_elem(&self, stage: &Stage) -> Elem {
        if self.elem(stage) == Elem::Bf16 { Elem::Bf16 } else { Elem::F32 }
    }

    /// Whether the cotangents of the logarithms of decays per channel are summed over all times: where a parameter that these are
    /// computed from does not vary along time.
    pub fn sums_channels_over_time(&self, stage: &Stage) -> bool {
        let (program, time) = (&stage.program, self.states.time);
        let lacks_time = |v| matches!(program.node(v).op, Op::Param(_)) && !program.node(v).axes.contains(time);
        let is_summed = |decay: Decay| any(program, decay.log, lacks_time);
        self.outputs.contains(&Cotangent::Channels) && self.states.decay.is_some_and(is_summed)
    }

    /// The axis of time, of the contraction, and the other axis of the states.
    fn axes(&self) -> [Axis; 3] {
        [self.states.time, self.states.depth, self.states.width]
    }

    /// The outputs that are sums over the width, beside those over the depth.
    pub fn sums_over_width(&self) -> u32 {
        self.outputs.iter().filter(|kind| matches!(kind, Cotangent::Sum(..))).count() as u32
    }

    /// The outer axes without the heads.
    pub fn shared(&self) -> AxisSet {
        self.states.outer.minus(self.heads)
    }

    /// The sum over depth of key·λ, of which there may be one.
    fn contraction_of(&self, stage: &Stage) -> Result<Option<(Value, Vec<Value>)>, Refusal> {
        let program = &stage.program;
        let [_, depth, width] = self.axes();
        let sums = (0..program.nodes.len() as u32).map(Value).filter_map(|tuple| match &program.node(tuple).op {
            Op::Reduce { axis, elements, .. } if *axis == depth => Some((tuple, elements[0])),
            _ => None,
        });
        let of_all = |v: Value| !program.node(v).axes.contains(width);
        let mut found = None;
        // The sum of λ times states of the step before is none of these sums: only the decay's cotangent needs it.
        for (tuple, element) in sums.filter(|(tuple, e)| !of_all(*tuple) && !self.is_energy(program, *e)) {
            let refusal = || Refusal::NotQuery { axis: program.axis_name(depth).to_owned() };
            let factors = self.factors(program, element, self.cotangents.state, self.states.key, depth);
            if found.replace((tuple, factors.ok_or_else(refusal)?)).is_some() {
                return Err(refusal());
            }
        }
        Ok(found)
    }

    /// The factors of a product beside a state and a parameter with this axis.
    fn factors(
        &self,
        program: &Program,
        element: Value,
        state: (Value, u32),
        param: u32,
        axis: Axis,
    ) -> Option<Vec<Value>> {
        let mut product = Product::of(program, element);
        let is_state = |v: &Value| program.node(*v).op == Op::Field(state.0, state.1);
        let states = product.factors.extract_if(.., |v| is_state(v)).count();
        let along = product.take_along(program, axis);
        let ([leaf], 1, []) = (&along[..], states, &product.conditions[..]) else { return None };
        (program.node(*leaf).op == Op::Param(param)).then_some(product.factors)
    }

    /// Whether a value is λ·S[t−1]. λ may be 0 where the decay is, and the product is 0 where a sequence begins.
    fn is_energy(&self, program: &Program, value: Value) -> bool {
        let Op::Binary(Binary::Mul, x, y) = program.node(value).op else { return false };
        let (tuple, field) = self.cotangents.state;
        let reset = self.states.decay.and_then(|decay| decay.reset);
        let is_dual = |mut v: Value| {
            let mut begins = reset.is_none();
            while let Op::Select(condition, zero, own) = program.node(v).op
                && is(program, zero, 0.0)
            {
                begins |= Some(condition) == reset;
                v = own;
            }
            begins && program.node(v).op == Op::Field(tuple, field)
        };
        let before = |v: Value| match program.node(v).op {
            Op::Field(tuple, field) if field == self.states.state.1 => {
                matches!(&program.node(tuple).op, Op::Scan { reverse: false, exclusive: true, .. })
            }
            _ => false,
        };
        (is_dual(x) && before(y)) || (is_dual(y) && before(x))
    }

    fn kind(&self, stage: &Stage, value: Value, axes: AxisSet) -> Option<Cotangent> {
        let program = &stage.program;
        let [time, depth, width] = self.axes();
        if !axes.contains(time) {
            return matches!(program.node(value).op, Op::First { .. } | Op::Last { .. }).then_some(Cotangent::Initial);
        }
        match (axes.contains(depth), axes.contains(width)) {
            (true, false) if self.is_of_channels(program, value, axes) => Some(Cotangent::Channels),
            (true, false) => self.over_depth(program, value, axes),
            (false, true) => self.is_map(program, value).then_some(Cotangent::Values),
            (false, false) => self.over_time(program, value, axes),
            (true, true) => None,
        }
    }

    /// The sum over width and heads of a state times the vector that it was read with.
    fn over_depth(&self, program: &Program, value: Value, axes: AxisSet) -> Option<Cotangent> {
        let [time, depth, width] = self.axes();
        let (mut element, mut over) = (value, AxisSet::EMPTY);
        while let Op::Field(tuple, 0) = program.node(element).op
            && let Op::Reduce { axis, elements, .. } = &program.node(tuple).op
        {
            over = over.with(*axis);
            element = elements[0];
        }
        if over != self.heads.with(width) || axes != self.shared().with(time).with(depth) {
            return None;
        }
        let [states, dual] = [&self.states, &self.cotangents];
        let same = |mut own: Vec<Value>, gain: &[Value]| {
            let mut gain = gain.to_vec();
            own.sort();
            gain.sort();
            own == gain
        };
        let of = |state, form: &MatrixRecurrence| self.factors(program, element, state, form.value, width);
        if of(dual.state, states).is_some_and(|own| same(own, &states.gain)) {
            return Some(Cotangent::Keys);
        }
        // S with its own element: the inclusive scan.
        let inclusive = (0..program.nodes.len() as u32)
            .map(Value)
            .find(|v| matches!(&program.node(*v).op, Op::Scan { reverse: false, exclusive: false, .. }))?;
        of((inclusive, states.state.1), dual).is_some_and(|own| same(own, &dual.gain)).then_some(Cotangent::Queries)
    }

    /// A sum over width of a map of the sums over depth, or the decay's cotangent.
    fn over_time(&self, program: &Program, value: Value, axes: AxisSet) -> Option<Cotangent> {
        let [time, depth, width] = self.axes();
        if axes != self.states.outer.with(time) {
            return None;
        }
        if let Op::Binary(Binary::Mul, ..) = program.node(value).op {
            let energy = |v: Value| total(program, v, [depth, width]);
            return self.is_decayed(program, value, energy).then_some(Cotangent::Decay);
        }
        let Op::Field(tuple, 0) = program.node(value).op else { return None };
        match &program.node(tuple).op {
            Op::Reduce { axis, elements, .. } if *axis == width && self.is_map(program, elements[0]) => {
                Some(Cotangent::Sum(tuple, elements[0]))
            }
            _ => None,
        }
    }

    /// Whether a value is the product of the decay and what these sums are of: λ·S[t−1].
    fn is_decayed(&self, program: &Program, value: Value, sum: impl Fn(Value) -> Option<Value>) -> bool {
        let Op::Binary(Binary::Mul, x, y) = program.node(value).op else { return false };
        // Where a sequence begins the energy is 0.
        let bare = |decay: Option<Decay>| decay.map(|decay| Decay { reset: None, ..decay });
        let decay = |v: Value| bare(exponential(program, v)) == bare(self.states.decay);
        let energy = |v: Value| sum(v).is_some_and(|e| self.is_energy(program, e));
        (decay(x) && energy(y)) || (decay(y) && energy(x))
    }

    /// Whether a value is the cotangent of the logarithms of decays of channels.
    fn is_of_channels(&self, program: &Program, value: Value, axes: AxisSet) -> bool {
        let [time, depth, width] = self.axes();
        let own = self.states.outer.with(time).with(depth);
        self.states.channels && axes == own && self.is_decayed(program, value, |v| sum_over(program, v, width))
    }

    /// Whether a value is a map of point values and of the sums over depth.
    fn is_map(&self, program: &Program, value: Value) -> bool {
        all(program, value, |v| match &program.node(v).op {
            Op::Field(tuple, 0) => Some(self.contraction.as_ref().is_some_and(|(own, _)| own == tuple)),
            Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => Some(true),
            op if op.is_map() => None,
            _ => Some(false),
        })
    }
}
