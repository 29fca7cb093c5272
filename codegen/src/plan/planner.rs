//! From a call to launches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op, Param, Program};
use oplus_dsl::specialize::without_param;

use super::choosing::{Choosing, IsThere};
use super::division::{Division, KnownStages};
use super::residual::{Residual, is_save, saved, saving, with_saved};
use super::sizes::{count, reach, shape};
use super::split::{Split, split};
use super::{Arg, Call, Launch, Layout, NotSplit, NotTaken, OtherCut, OtherSplit, Plan, PlanError};
use crate::schedules::{Constants, Schedule};
use crate::stage::{Cut, CutKind, CutRefusal, cut_ordered, cuts};
use crate::target::Target;

/// The most schedules of a backward-scan stage that fit a call.
const SCHEDULES: usize = 12;

/// Bytes that the buffers of a plan may always take: for less it is not divided into pieces.
const SPARE: u64 = 64 << 20;
/// How many times as long as the fastest plan one may take that needs less memory by another cut.
const SLOWER: f64 = 2.0;

/// The plan of one call of a verified, instantiated program. Parameters that the call leaves out are constants.
pub fn plan(program: &Program, call: &Call, target: &Target) -> Result<Plan, PlanError> {
    let given = |(i, param): (usize, &Param)| param.default.is_none() || call.params.get(i).is_none_or(Option::is_some);
    let kept: Vec<usize> = program.params.iter().enumerate().filter(|p| given(*p)).map(|(i, _)| i).collect();
    if kept.len() == program.params.len() {
        return Planner::new(program, target)?.plan(call);
    }
    let absent = (0..program.params.len()).filter(|i| !kept.contains(i)).map(|i| &program.params[i].name);
    let specialised = absent.fold(program.clone(), |program, name| without_param(&program, name));
    let params = kept.iter().map(|i| call.params[*i].clone()).collect();
    let mut plan = Planner::new(&specialised, target)?.plan(&Call { params, ..call.clone() })?;
    for arg in plan.steps.iter_mut().flat_map(|step| &mut step.args) {
        if let Arg::Param(i) = arg {
            *i = kept[*i as usize] as u32;
        }
    }
    Ok(plan)
}

/// Planners of a program with a split axis, or why there is none.
type SplitPlanners = HashMap<Axis, Result<Arc<Planner>, NotSplit>>;

/// A program made ready for planning.
///
/// Parameters that calls leave out must be gone from it (`oplus_dsl::specialize`), or unread.
#[derive(Debug)]
pub struct Planner {
    program: Program,
    target: Target,
    /// In the order in which plans are compared.
    divisions: Vec<Division>,
    /// The ways in which the program is not cut, and why.
    refused: Vec<(CutKind, CutRefusal)>,
    /// Bytes that buffers may always take.
    spare: u64,
    /// Planners of the program with a split axis, as calls have asked for them.
    split: Option<Mutex<SplitPlanners>>,
}

impl Planner {
    /// Cuts a program and lists its schedules on a target.
    pub fn new(program: &Program, target: &Target) -> Result<Planner, PlanError> {
        let (mut divisions, mut refused, mut known) = (vec![], vec![], KnownStages::default());
        for (how, cut) in cuts(program)?.0 {
            match cut {
                Ok(cut) => divisions.push(Division::new(how, cut, target, &mut known)),
                Err(refusal) => refused.push((how, refusal)),
            }
        }
        let split = Some(Mutex::default());
        Ok(Planner { program: program.clone(), target: *target, divisions, refused, spare: SPARE, split })
    }

    /// A planner of committed kernels alone: its plans use only cuts that have such kernels. Its plans are not divided into
    /// pieces, which need no kernels of their own.
    ///
    /// # Errors
    /// As [`Planner::new`].
    pub fn of_committed(program: &Program, target: &Target) -> Result<Planner, PlanError> {
        let mut planner = Planner::new(program, target)?;
        planner.divisions.retain(|division| division.how.is_committed());
        (planner.spare, planner.split) = (u64::MAX, None);
        Ok(planner)
    }

    /// A planner whose plans combine one element after the other, in all scans and reductions, by the operations of the
    /// program and no others. A call in pieces, each from the state that the one before left, and a call of one-step
    /// forms give the bits of the whole. States that the program sums away are stored in between.
    pub fn ordered(program: &Program, target: &Target) -> Result<Planner, PlanError> {
        let divisions = vec![Division::ordered(cut_ordered(program)?, target)];
        Ok(Planner { program: program.clone(), target: *target, divisions, refused: vec![], spare: SPARE, split: None })
    }

    /// Estimates by other constants than those of the committed table, to find out which are best.
    pub fn set_constants(&mut self, constants: &Constants) {
        self.divisions.iter_mut().for_each(|division| division.constants = *constants);
    }

    /// Lets buffers always take so many bytes, for tests of small calls: a plan that takes more, and more than four times the
    /// memory of its call, runs in pieces.
    pub fn set_spare(&mut self, bytes: u64) {
        self.spare = bytes;
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The stages of one way to cut the program, and the buffers between them; `None` where the program is not cut so.
    pub fn cut(&self, how: CutKind) -> Option<&Cut> {
        self.division(how).map(|division| &division.cut)
    }

    fn division(&self, how: CutKind) -> Option<&Division> {
        self.divisions.iter().find(|division| division.how == how)
    }

    /// The plan of a call with the stages of one way to cut the program, whether or not that is fastest; every stage takes the
    /// schedule that is estimated to be the `rank`-th after the fastest. `None` where the program is not cut so.
    ///
    /// For tests and measurements, as [`Planner::launch`].
    pub fn plan_of(&self, how: CutKind, call: &Call, rank: usize) -> Result<Option<Plan>, PlanError> {
        self.check(call)?;
        self.division(how).map(|division| division.plan(call, Choosing::ranked(rank))).transpose()
    }

    /// The plan of a call.
    pub fn plan(&self, call: &Call) -> Result<Plan, PlanError> {
        self.plan_ranked(call, 0)
    }

    /// The plan of a call among those whose kernels the verifier accepts. Each kernel that is taken is lowered for it, which takes
    /// several times as long as planning.
    pub fn plan_sound(&self, call: &Call) -> Result<Plan, PlanError> {
        self.choose(call, Choosing::sound())
    }

    /// The plan of a call among those whose kernels are there. Bounds of memory hold as for all plans.
    pub fn plan_among(&self, call: &Call, is_there: &IsThere<'_>) -> Result<Plan, PlanError> {
        self.choose(call, Choosing::among(is_there))
    }

    /// The plan of a call that also saves its states for the gradient, and what it saves; `None` where there are no states
    /// to be saved.
    pub fn plan_saving(&self, call: &Call) -> Result<Option<(Plan, Residual)>, PlanError> {
        self.save(call, Choosing::default())
    }

    /// The plan of a call that saves states for its gradient, among plans whose kernels are there.
    pub fn plan_saving_among(
        &self,
        call: &Call,
        is_there: &IsThere<'_>,
    ) -> Result<Option<(Plan, Residual)>, PlanError> {
        let isa = self.target.isa;
        self.save(
            call,
            Choosing::among(&|launch| with_saved(launch, isa).map_or_else(|| is_there(launch), |l| is_there(&l))),
        )
    }

    /// The plan of a gradient's call that starts from states saved by the call it belongs to; `None` where it cannot.
    pub fn plan_saved(&self, call: &Call, residual: &Residual) -> Result<Option<Plan>, PlanError> {
        self.start_from(call, residual, None)
    }

    /// The plan of a gradient's call that starts from saved states, among plans whose kernels are there.
    pub fn plan_saved_among(
        &self,
        call: &Call,
        residual: &Residual,
        is_there: &IsThere<'_>,
    ) -> Result<Option<Plan>, PlanError> {
        self.start_from(call, residual, Some(&|launch| is_save(launch) || is_there(launch)))
    }

    /// A slower plan of a call, for tests and measurements: every stage takes the schedule that is estimated to be the
    /// `rank`-th after the fastest, or the slowest where there are fewer.
    pub fn plan_ranked(&self, call: &Call, rank: usize) -> Result<Plan, PlanError> {
        self.choose(call, Choosing::ranked(rank))
    }

    fn save(&self, call: &Call, choosing: Choosing<'_>) -> Result<Option<(Plan, Residual)>, PlanError> {
        self.check(call)?;
        let plan = self.division(CutKind::Contracted).and_then(|division| division.plan(call, choosing).ok());
        // Recurrences with a split axis take chunks in both directions, which need no saved states.
        let plan = plan.filter(|plan| self.with_split_axis(call, choosing, plan).is_err());
        Ok(plan.and_then(|plan| saving(&self.program, plan, call, self.target.isa)))
    }

    fn start_from(
        &self,
        call: &Call,
        residual: &Residual,
        is_there: Option<&IsThere<'_>>,
    ) -> Result<Option<Plan>, PlanError> {
        self.check(call)?;
        let Some(division) = self.division(CutKind::BackwardScan) else { return Ok(None) };
        // The fastest schedules may want the states in another form.
        let of_rank = |rank| {
            let plan = division.plan(call, Choosing { rank, is_there, sound: false }).ok()?;
            saved(&self.program, plan, call, residual)
        };
        Ok((0..SCHEDULES).find_map(of_rank))
    }

    /// The fastest plan of all cuts.
    fn choose(&self, call: &Call, choosing: Choosing<'_>) -> Result<Plan, PlanError> {
        self.check(call)?;
        let plans: Vec<(CutKind, Result<Plan, PlanError>)> =
            self.divisions.iter().map(|division| (division.how, division.plan(call, choosing))).collect();
        // Stages that store all states may be fast, but many states take memory without bound.
        let room = self.leanest(call, &plans, choosing).map(|least| least.max(self.room(call)));
        let excess = |how: CutKind, plan: &Plan| {
            let (bytes, room) = (plan.buffer_bytes(), room?);
            (how.may_store_states() && bytes > room).then_some(NotTaken::Memory { bytes, room })
        };
        let of_kept = |(how, plan): &(CutKind, Result<Plan, PlanError>)| {
            let plan = plan.as_ref().ok()?;
            excess(*how, plan).is_none().then_some((*how, plan.micros()))
        };
        let fastest = plans.iter().filter_map(of_kept).min_by(|(_, a), (_, b)| a.total_cmp(b));
        // Where every plan takes too much memory, the one with the least is taken; of equal ones the plain one.
        let bytes = |(how, plan): &(CutKind, Result<Plan, PlanError>)| Some((*how, plan.as_ref().ok()?.buffer_bytes()));
        let leanest = || plans.iter().filter_map(bytes).min_by_key(|(_, bytes)| *bytes).map(|(how, _)| how);
        let taken = fastest.map(|(how, _)| how).or_else(leanest).unwrap_or(CutKind::Plain);
        let (mut best, mut others) = (None, vec![]);
        for (how, plan) in plans {
            let why = match plan {
                plan if how == taken => {
                    best = Some(plan);
                    continue;
                }
                Ok(plan) => excess(how, &plan).unwrap_or(NotTaken::Slower { micros: plan.micros() }),
                Err(error) => NotTaken::Plan(Box::new(error)),
            };
            others.push(OtherCut { how, why });
        }
        let refused = self.refused.iter().map(|(how, why)| OtherCut { how: *how, why: NotTaken::Cut(why.clone()) });
        let best = best.unwrap_or(Err(PlanError::NoStage))?;
        let other_splits = match self.with_split_axis(call, choosing, &best) {
            Ok(plan) => return Ok(plan),
            Err(others) => others,
        };
        let bytes = best.bytes();
        let best = self.in_pieces(call, choosing, best);
        if best.cut != taken {
            others.retain(|other| other.how != best.cut);
            let why = NotTaken::Memory { bytes, room: self.room(call) };
            others.push(OtherCut { how: taken, why });
        }
        Ok(Plan { other_cuts: others.into_iter().chain(refused).collect(), other_splits, ..best })
    }

    /// The fastest plan with a split axis that is longer than a block can sum, if that is faster; else why each such axis is not split.
    fn with_split_axis(&self, call: &Call, choosing: Choosing<'_>, plan: &Plan) -> Result<Plan, Vec<OtherSplit>> {
        if self.split.is_none() {
            return Err(vec![]);
        }
        let longest: BTreeSet<(Axis, i64)> = self.divisions.iter().flat_map(Division::longest_sums).collect();
        let (mut plans, mut others) = (vec![], vec![]);
        for (axis, most) in longest.into_iter().filter(|(axis, most)| call.sizes[axis.0 as usize] > *most) {
            match self.plan_with(call, choosing, plan, axis, most) {
                Ok(own) => plans.push(own),
                Err(why) => others.push(OtherSplit { axis: self.program.axis_name(axis).to_owned(), why }),
            }
        }
        plans.into_iter().min_by(|a, b| a.micros().total_cmp(&b.micros())).ok_or(others)
    }

    /// The plan of a call with an axis split into parts of at most so many indices, if it is faster than another and takes little memory.
    fn plan_with(
        &self,
        call: &Call,
        choosing: Choosing<'_>,
        other: &Plan,
        axis: Axis,
        most: i64,
    ) -> Result<Plan, NotSplit> {
        let size = call.sizes[axis.0 as usize];
        let split = Split::of(axis, size, most).ok_or(NotSplit::Parts { size, most })?;
        let plan = self.known_planner_of(axis)?.choose(&split.call(&self.program, call), choosing);
        let plan = plan.map_err(|error| NotTaken::Plan(Box::new(error)))?;
        let (bytes, room) = (plan.buffer_bytes(), self.room(call).saturating_mul(2));
        let room = room.max(self.spare).max(other.buffer_bytes());
        if bytes > room {
            return Err(NotTaken::Memory { bytes, room }.into());
        }
        let micros = plan.micros();
        if micros < other.micros() { Ok(plan) } else { Err(NotTaken::Slower { micros }.into()) }
    }

    /// The planner of the program with a split axis, made at the first call that asks for it.
    fn known_planner_of(&self, axis: Axis) -> Result<Arc<Planner>, NotSplit> {
        let Some(planners) = &self.split else { return self.planner_of(axis) };
        let mut planners = planners.lock().unwrap_or_else(PoisonError::into_inner);
        planners.entry(axis).or_insert_with(|| self.planner_of(axis)).clone()
    }

    /// The plan of a call with an axis split into an outer one of a size and an inner one, and the program of both axes cut in one way,
    /// whether or not that is fastest; `None` where it cannot be.
    ///
    /// For tests and measurements, as [`Planner::launch`].
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub fn plan_split(&self, how: CutKind, call: &Call, axis: Axis, outer: i64) -> Result<Option<Plan>, PlanError> {
        self.check(call)?;
        let is_equal = outer > 0 && call.sizes.get(axis.0 as usize).is_some_and(|size| size % outer == 0);
        let planner = if is_equal { self.planner_of(axis).ok() } else { None };
        let Some(planner) = planner else { return Ok(None) };
        planner.plan_of(how, &Split { axis, outer }.call(&self.program, call), 0)
    }

    /// The planner of the program with a split axis.
    fn planner_of(&self, axis: Axis) -> Result<Arc<Planner>, NotSplit> {
        let program = split(&self.program, axis).ok_or(NotSplit::Whole)?;
        let planner = Planner::new(&program, &self.target).map_err(|error| NotTaken::Plan(Box::new(error)))?;
        let constants = self.divisions.first().map(|division| division.constants);
        let mut planner = Planner { spare: self.spare, split: None, ..planner };
        constants.iter().for_each(|constants| planner.set_constants(constants));
        Ok(Arc::new(planner))
    }

    /// A plan whose buffers take more than four times the call's tensors, in pieces that take less, if it can run so.
    fn in_pieces(&self, call: &Call, choosing: Choosing<'_>, plan: Plan) -> Plan {
        let (bytes, most) = (plan.bytes(), self.room(call).saturating_mul(2).max(self.spare));
        if bytes <= most {
            return plan;
        }
        let of = |division: &Division| division.plan_in_pieces(&self.program, call, choosing, most);
        let own = self.division(plan.cut).and_then(of);
        if own.as_ref().is_some_and(|own| own.bytes() <= most) {
            return own.unwrap_or(plan);
        }
        // Another cut may be one whose stages run in pieces.
        let others = self.divisions.iter().filter(|division| division.how != plan.cut).filter_map(of);
        let others = others.filter(|other| other.micros() <= SLOWER * plan.micros());
        let all: Vec<Plan> = own.into_iter().chain(others).filter(|divided| divided.bytes() < bytes).collect();
        let rank = |plan: &Plan| (plan.bytes().max(most), plan.micros());
        let better = |a: &Plan, b: &Plan| {
            let ((bytes, micros), (others, slower)) = (rank(a), rank(b));
            bytes.cmp(&others).then(micros.total_cmp(&slower))
        };
        all.into_iter().min_by(better).unwrap_or(plan)
    }

    /// Bytes of the buffers of the leanest plan that stores no states but saved ones. Whether its kernels are there does not
    /// matter.
    fn leanest(
        &self,
        call: &Call,
        plans: &[(CutKind, Result<Plan, PlanError>)],
        choosing: Choosing<'_>,
    ) -> Option<u64> {
        let is_lean = |how: CutKind| matches!(how, CutKind::BackwardScan | CutKind::Contracted);
        if choosing.is_there.is_none() {
            let lean = plans.iter().filter(|(how, _)| is_lean(*how));
            return lean.filter_map(|(_, plan)| Some(plan.as_ref().ok()?.buffer_bytes())).min();
        }
        let lean = self.divisions.iter().filter(|division| is_lean(division.how));
        lean.filter_map(|division| Some(division.plan(call, Choosing::ranked(choosing.rank)).ok()?.buffer_bytes()))
            .min()
    }

    /// Bytes that a plan's buffers may take: twice the call's tensors.
    fn room(&self, call: &Call) -> u64 {
        let bytes = |axes: &[Axis], elem: Elem| {
            count(call, axes).unwrap_or(u64::MAX).saturating_mul(elem.bytes().unwrap_or(8) as u64)
        };
        let params = self.program.params.iter().map(|param| bytes(&param.axes, param.elem));
        let outputs = self.program.outputs.iter().map(|output| bytes(&output.axes, output.elem));
        params.chain(outputs).fold(0, u64::saturating_add).saturating_mul(2)
    }

    /// The launch of one stage, its axes as they are, under any schedule. The stage is one of the first way to cut the program
    /// that has a stage for the schedule.
    ///
    /// For tests and measurements: [`Planner::plan`] chooses among the [`variants`](super::variants()) of a stage.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn launch(&self, call: &Call, stage: usize, schedule: Schedule) -> Result<Launch, PlanError> {
        self.division_for(&schedule)?.launch(call, stage, schedule)
    }

    /// The way to cut the program whose stages a schedule takes.
    fn division_for(&self, schedule: &Schedule) -> Result<&Division, PlanError> {
        // Grouped-query cuts come before other cuts with sums over pairs, whose stages have the same schedules.
        let mut kinds = CutKind::ALL.to_vec();
        let is_of_pairs = |how: &CutKind| {
            use CutKind::{Pairwise, PairwiseArranged, PairwiseSeparate, SplitK};
            matches!(how, Pairwise | PairwiseSeparate | PairwiseArranged | SplitK)
        };
        kinds.sort_by_key(is_of_pairs);
        let mut all = kinds.into_iter().filter_map(|how| self.division(how));
        all.find(|division| division.is_for(schedule)).ok_or(PlanError::NoStage)
    }

    /// The plan of a call in which the stages with states have this schedule.
    ///
    /// For tests and measurements, as [`Planner::launch`].
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn plan_states(&self, call: &Call, schedule: Schedule) -> Result<Plan, PlanError> {
        self.division_for(&schedule)?.plan_states(call, schedule)
    }

    fn check(&self, call: &Call) -> Result<(), PlanError> {
        let program = &self.program;
        let counts = [
            ("sizes", call.sizes.len(), program.axes.len()),
            ("parameters", call.params.len(), program.params.len()),
            ("outputs", call.outputs.len(), program.outputs.len()),
        ];
        if let Some((what, given, wanted)) = counts.into_iter().find(|(_, given, wanted)| given != wanted) {
            return Err(PlanError::Count { what, given, wanted });
        }
        if let Some((axis, size)) = program.axes.iter().zip(&call.sizes).find(|(_, size)| **size < 0) {
            return Err(PlanError::Size { axis: axis.clone(), size: *size });
        }
        for (i, (param, layout)) in program.params.iter().zip(&call.params).enumerate() {
            match layout {
                Some(layout) => self.check_layout(call, &param.name, param.elem, &param.axes, layout)?,
                None if self.is_read(i as u32) => return Err(PlanError::Missing(param.name.clone())),
                None => {}
            }
        }
        for (output, layout) in program.outputs.iter().zip(&call.outputs) {
            self.check_layout(call, &output.name, output.elem, &output.axes, layout)?;
            let repeats = |(axis, stride): (&Axis, &i64)| *stride == 0 && call.sizes[axis.0 as usize] > 1;
            let is_empty = output.axes.iter().any(|axis| call.sizes[axis.0 as usize] == 0);
            if !is_empty && output.axes.iter().zip(&layout.strides).any(repeats) {
                return Err(PlanError::Overlap(output.name.clone()));
            }
        }
        Ok(())
    }

    fn check_layout(
        &self,
        call: &Call,
        name: &str,
        elem: Elem,
        axes: &[Axis],
        layout: &Layout,
    ) -> Result<(), PlanError> {
        let (given, wanted) = (layout.strides.len(), axes.len());
        if given != wanted {
            return Err(PlanError::Strides { tensor: name.to_owned(), given, wanted });
        }
        let shape = || shape(axes.iter().map(|a| (self.program.axis_name(*a), call.sizes[a.0 as usize])));
        if count(call, axes).is_none() {
            return Err(PlanError::TooLarge { name: name.to_owned(), shape: shape() });
        }
        if reach(call, axes, layout, elem).is_none() {
            let strides = layout.strides.clone();
            return Err(PlanError::Reach { tensor: name.to_owned(), shape: shape(), strides });
        }
        Ok(())
    }

    fn is_read(&self, param: u32) -> bool {
        self.program.nodes.iter().any(|n| n.op == Op::Param(param))
    }
}
