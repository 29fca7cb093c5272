//! A program divided into stages, each with its schedules.

mod facts;
mod layouts;
mod pieces;
mod sound;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use oplus_dsl::ir::Axis;

use super::choosing::Choosing;
use super::cost::estimate;
use super::fits::fits;
use super::{Arg, Buffer, Call, Choice, Estimate, Launch, Layout, Plan, PlanError, Reasons};
use crate::abi::Role;
use crate::key::Key;
use crate::schedules::{Constants, Misfit, Piece, Problem, Schedule, Segments};
use crate::stage::{Bound, Collapsed, Cut, CutKind, Stage, collapse};
use crate::target::Target;
use facts::Facts;
pub(super) use facts::KnownStages;
use layouts::args;

/// Facts of kernels, each named by the form of its stage and its schedule.
type OfKernels<T> = Mutex<HashMap<(FormId, Schedule), T>>;

/// One way of cutting a program.
#[derive(Debug)]
pub(super) struct Division {
    target: Target,
    /// The way in which the program is cut.
    pub(super) how: CutKind,
    /// The stages and the buffers between them.
    pub(super) cut: Cut,
    /// The constants of the cost model.
    pub(super) constants: Constants,
    stages: Vec<Ready>,
    /// The keys and symbols of kernels that a plan has launched.
    names: OfKernels<(Key, String)>,
    /// The reasons why kernels of schedules that were taken cannot run, if they cannot.
    faults: OfKernels<Option<Misfit>>,
}

/// A stage and its schedules.
#[derive(Debug)]
struct Ready {
    plain: Form,
    merged: Option<(Collapsed, Form)>,
}

/// The name of a form in its division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FormId {
    /// The number of the stage.
    index: usize,
    is_merged: bool,
}

#[derive(Debug)]
struct Form {
    id: FormId,
    stage: Arc<Stage>,
    schedules: Vec<Schedule>,
    facts: Arc<Facts>,
}

impl Form {
    fn new(
        id: FormId,
        stage: Stage,
        known: &mut KnownStages,
        schedules: impl FnOnce(&Facts, &Stage) -> Vec<Schedule>,
    ) -> Form {
        let stage = Arc::new(stage);
        let facts = known.facts(&stage);
        Form { id, schedules: schedules(&facts, &stage), facts, stage }
    }
}

/// A form of a stage for a call.
struct Bindings<'d> {
    form: &'d Form,
    bound: Bound,
}

/// A call, or a piece of one.
struct Given {
    call: Call,
    /// The layouts of buffers that are there for all pieces; the others are contiguous.
    kept: Vec<Option<Layout>>,
}

impl std::ops::Deref for Given {
    type Target = Call;

    fn deref(&self) -> &Call {
        &self.call
    }
}

/// The schedules of a stage for a call.
struct Offers {
    /// The schedules that may be taken, the fastest first.
    candidates: Vec<Estimate>,
    /// The others, and why they cannot.
    refused: Vec<(Schedule, Misfit)>,
}

/// A launch of a stage.
struct Launched {
    /// Its piece of the rows.
    piece: Piece,
    /// The sizes and layouts of the piece.
    bound: Bound,
    launch: Launch,
}

impl Division {
    /// Lists the schedules of every stage on a target. Facts of stages that other divisions have, too, are shared with them.
    pub(super) fn new(how: CutKind, cut: Cut, target: &Target, known: &mut KnownStages) -> Division {
        let isa = target.isa;
        let mut ready = |(index, stage): (usize, &Stage)| {
            let plain = FormId { index, is_merged: false };
            match collapse(stage) {
                None => {
                    let plain = Form::new(plain, stage.clone(), known, |facts, stage| facts.schedules(stage, isa));
                    Ready { plain, merged: None }
                }
                Some(merged) => {
                    let (id, simplest) = (FormId { index, is_merged: true }, merged.stage.clone());
                    let simplest = Form::new(id, simplest, known, |facts, stage| facts.schedules(stage, isa));
                    let plain = Form::new(plain, stage.clone(), known, |facts, stage| facts.unmerged(stage, isa));
                    Ready { plain, merged: Some((merged, simplest)) }
                }
            }
        };
        let stages = cut.stages.iter().enumerate().map(&mut ready).collect();
        Division::of(how, cut, target, stages)
    }

    /// The stages with schedules that combine one element after the other.
    pub(super) fn ordered(cut: Cut, target: &Target) -> Division {
        let ready = |(index, stage): (usize, &Stage)| {
            let (id, known) = (FormId { index, is_merged: false }, &mut KnownStages::default());
            Ready { plain: Form::new(id, stage.clone(), known, |_, stage| Schedule::ordered(stage)), merged: None }
        };
        let stages = cut.stages.iter().enumerate().map(ready).collect();
        Division::of(CutKind::Plain, cut, target, stages)
    }

    fn of(how: CutKind, cut: Cut, target: &Target, stages: Vec<Ready>) -> Division {
        let (names, faults, constants) = (Mutex::default(), Mutex::default(), *Constants::committed());
        Division { target: *target, how, cut, constants, stages, names, faults }
    }

    /// The axes of the program that blocks of some stage sum over as a whole, each with the most places: of all schedules that the target has
    /// shared memory for, of those among them that copy whole accesses, and of parts that may be faster.
    pub(super) fn longest_sums(&self) -> impl Iterator<Item = (Axis, i64)> {
        self.stages.iter().flat_map(|ready| {
            let form = ready.merged.as_ref().map_or(&ready.plain, |(_, form)| form);
            let Form { stage, schedules, .. } = form;
            let all = schedules.iter().filter_map(|schedule| Some((schedule, schedule.longest_sum(stage)?)));
            let all: Vec<_> = all.filter(|(schedule, _)| self.has_room(form, **schedule).is_ok()).collect();
            let axis = all.first().and_then(|(_, (own, _))| match stage.axes[own.0 as usize][..] {
                [axis] => Some(axis),
                _ => None,
            });
            let longest = all.iter().map(|(_, (_, most))| *most).max();
            let whole = all.iter().filter(|(schedule, _)| schedule.vector() > 1).map(|(_, (_, most))| *most).max();
            let parts = schedules.iter().filter_map(|schedule| schedule.faster_parts(stage)).max();
            [longest, whole, parts].into_iter().flatten().filter_map(move |most| Some((axis?, most)))
        })
    }

    /// The plan of a call.
    pub(super) fn plan(&self, call: &Call, choosing: Choosing<'_>) -> Result<Plan, PlanError> {
        let mut call = self.with_partial_sums(call, 1);
        self.check(&call)?;
        let buffers = self.buffers(&call)?;
        let mut plan = self.empty(buffers);
        for index in 0..self.stages.len() {
            if let Some(count) = self.step(&call, choosing, index, &mut plan)? {
                call = self.with_partial_sums(&call, count);
                self.check(&call)?;
                plan.buffers.splice(..self.cut.buffers.len(), self.buffers(&call)?);
            }
        }
        Ok(plan)
    }

    /// A plan without launches.
    fn empty(&self, buffers: Vec<Buffer>) -> Plan {
        let (steps, pieces, choices) = (vec![], vec![], vec![]);
        let (other_cuts, other_splits) = (vec![], vec![]);
        Plan { cut: self.how, steps, buffers, pieces, message_words: 0, choices, other_cuts, other_splits }
    }

    /// The call with so many partial sums of each sum that is stored so, if there is one.
    fn with_partial_sums(&self, call: &Call, count: u64) -> Given {
        let mut call = call.clone();
        if let Some(axis) = self.cut.partial_axis {
            call.sizes.resize(axis.0 as usize + 1, 1);
            call.sizes[axis.0 as usize] = count as i64;
        }
        Given { call, kept: vec![] }
    }

    /// The launch of one stage, its axes as they are, under any schedule.
    pub(super) fn launch(&self, call: &Call, stage: usize, schedule: Schedule) -> Result<Launch, PlanError> {
        let form = &self.stages[stage].plain;
        let call = self.with_partial_sums(call, 1);
        self.check(&call)?;
        let bound = self.bind(&call, &form.stage);
        let problem = self.problem(&form.stage, &bound);
        self.must_fit(form, schedule, &problem)?;
        let segments = schedule.segments(&problem);
        Ok(self.launch_of(form, schedule, &problem, segments, 0))
    }

    /// Whether a stage, its axes as they are, can run under a schedule.
    fn must_fit(&self, form: &Form, schedule: Schedule, problem: &Problem<'_>) -> Result<(), PlanError> {
        let fits = fits(&*schedule, problem).and_then(|()| self.has_room(form, schedule));
        fits.map_err(|misfit| PlanError::Misfit {
            stage: form.stage.program.name.clone(),
            schedule,
            misfit: Box::new(misfit),
        })
    }

    fn problem<'a>(&'a self, stage: &'a Stage, bound: &'a Bound) -> Problem<'a> {
        Problem { stage, bound, target: &self.target, constants: &self.constants }
    }

    fn launch_of(
        &self,
        form: &Form,
        schedule: Schedule,
        problem: &Problem<'_>,
        segments: Segments,
        piece: i64,
    ) -> Launch {
        let (key, symbol) = self.name(form, schedule);
        Launch {
            stage: form.stage.clone(),
            schedule,
            key,
            symbol,
            grid: [schedule.grid(problem), schedule.blocks_along_time(segments), 1],
            threads: schedule.threads(),
            shared_bytes: form.facts.shared_bytes(&form.stage, schedule, self.target.isa),
            args: args(&schedule, problem, segments, piece),
            offsets: vec![],
            device: self.target.isa,
        }
    }

    /// Adds the launch of a stage to the plan. Gives the number of partial sums, if it stores some.
    fn step(
        &self,
        call: &Given,
        choosing: Choosing<'_>,
        index: usize,
        plan: &mut Plan,
    ) -> Result<Option<u64>, PlanError> {
        let ready = &self.stages[index];
        let bound = self.bind(call, &ready.plain.stage);
        let stage = &ready.plain.stage;
        let is_whole = stage.opposite_scans().is_some() || stage.kind().across().is_ok();
        let empty = is_whole && bound.sizes.contains(&0);
        if !empty && !produces(&ready.plain.stage, &bound) {
            plan.choices.push(Choice { step: None, candidates: vec![], refused: vec![] });
            return Ok(None);
        }
        let (Bindings { form, bound }, Offers { candidates, refused }) = self.fitting(call, index, choosing);
        let Some(best) = candidates.first() else {
            let stage = form.stage.program.name.clone();
            return Err(PlanError::NoSchedule { stage, reasons: Reasons(refused) });
        };
        let schedule = best.schedule;
        let (bound, partial_sums) = self.bound_under(call, form, bound, &schedule);
        plan.message_words = plan.message_words.max(schedule.message_words(&self.problem(&form.stage, &bound)));
        self.launches(form, schedule, &bound, Choice { step: None, candidates, refused }, plan);
        Ok(partial_sums)
    }

    /// The form in which a stage runs, and its schedules, the one that is taken first.
    fn fitting(&self, call: &Given, index: usize, choosing: Choosing<'_>) -> (Bindings<'_>, Offers) {
        let of = |merges| {
            let bindings = self.bindings(call, index, merges);
            let fitting = self.candidates(call, &bindings, choosing);
            let some_fit = !fitting.candidates.is_empty();
            let offers = self.take(bindings.form, fitting, choosing);
            (bindings, offers, some_fit)
        };
        let (simplest, offers, some_fit) = of(true);
        // Every schedule of merged axes may lack its kernel, or have one that cannot run; those of the stage as it is remain.
        let lacks_kernels = offers.candidates.is_empty() && (some_fit || choosing.is_there.is_some());
        if lacks_kernels && simplest.form.id.is_merged {
            let (plain, offers, _) = of(false);
            return (plain, offers);
        }
        (simplest, offers)
    }

    /// A stage with merged axes if that is wanted and the call allows it, and its sizes and layouts.
    fn bindings(&self, call: &Given, index: usize, merges: bool) -> Bindings<'_> {
        let ready = &self.stages[index];
        let bound = self.bind(call, &ready.plain.stage);
        let merged = ready.merged.as_ref().filter(|_| merges);
        let merged = merged.and_then(|(collapsed, form)| Some((form, collapsed.bind(&ready.plain.stage, &bound)?)));
        match merged {
            Some((form, bound)) => Bindings { form, bound },
            None => Bindings { form: &ready.plain, bound },
        }
    }

    /// A stage's sizes and layouts under a schedule, and the number of partial sums, if it stores some.
    fn bound_under(&self, call: &Given, form: &Form, bound: Bound, schedule: &Schedule) -> (Bound, Option<u64>) {
        let count = form.stage.partial_axis.and_then(|_| schedule.partial_sums(&self.problem(&form.stage, &bound)));
        let Some(count) = count else { return (bound, None) };
        let FormId { index, is_merged } = form.id;
        (self.bindings(&self.with_partial_sums(call, count), index, is_merged).bound, Some(count))
    }

    /// Adds the launches of a stage to a plan: one, or several with their scratch memory.
    fn launches(&self, form: &Form, schedule: Schedule, bound: &Bound, choice: Choice, plan: &mut Plan) {
        let first = plan.buffers.len() as u32;
        let problem = self.problem(&form.stage, bound);
        let lens = schedule.scratch_lens(&problem, &schedule.pieces(&problem)).unwrap_or_default();
        let elems = schedule.scratch(&form.stage).into_iter().map(|(_, elem)| elem);
        plan.buffers.extend(elems.zip(lens).map(|(elem, len)| Buffer { elem, len }));
        let mut choice = Some(choice);
        for Launched { piece, bound, mut launch } in self.launched(form, schedule, bound) {
            place(&mut launch, first, piece, &bound);
            let none = || Choice { step: None, candidates: vec![], refused: vec![] };
            let taken = if launch.schedule == schedule { choice.take() } else { None }.unwrap_or_else(none);
            plan.choices.push(Choice { step: Some(plan.steps.len()), ..taken });
            plan.steps.push(launch);
        }
    }

    /// The launches of a stage: for each piece of the rows those of all its kernels.
    fn launched(&self, form: &Form, schedule: Schedule, bound: &Bound) -> Vec<Launched> {
        let of = |(piece, own): (Piece, Schedule)| {
            let bound = piece.bound(&form.stage, bound);
            let problem = self.problem(&form.stage, &bound);
            let segments = own.own_segments(schedule.segments(&problem));
            let is_empty = own.blocks_of_recurrence(&problem) == Some(0) || own.blocks_along_time(segments) == 0;
            (!is_empty).then(|| {
                let launch = self.launch_of(form, own, &problem, segments, piece.bits);
                Launched { piece, bound: bound.clone(), launch }
            })
        };
        let pieces = schedule.pieces(&self.problem(&form.stage, bound)).into_iter();
        pieces
            .flat_map(|piece| schedule.kernels(&form.stage, self.target.isa).into_iter().map(move |own| (piece, own)))
            .filter_map(of)
            .collect()
    }

    /// The plan of a call in which the stages with states have one schedule.
    pub(super) fn plan_states(&self, call: &Call, schedule: Schedule) -> Result<Plan, PlanError> {
        let call = &Given { call: call.clone(), kept: vec![] };
        self.check(call)?;
        let mut plan = self.empty(self.buffers(call)?);
        for (index, ready) in self.stages.iter().enumerate() {
            let form = &ready.plain;
            if form.stage.state_axis().is_none() {
                self.step(call, Choosing::default(), index, &mut plan)?;
                continue;
            }
            let bound = self.bind(call, &form.stage);
            self.must_fit(form, schedule, &self.problem(&form.stage, &bound))?;
            let choice = Choice { step: None, candidates: vec![], refused: vec![] };
            self.launches(form, schedule, &bound, choice, &mut plan);
        }
        Ok(plan)
    }

    /// Whether some stage is of a kind that a schedule takes.
    pub(super) fn is_for(&self, schedule: &Schedule) -> bool {
        self.cut.stages.iter().any(|stage| schedule.is_for(stage))
    }

    /// The schedules of a form.
    fn candidates(&self, call: &Given, Bindings { form, bound }: &Bindings<'_>, choosing: Choosing<'_>) -> Offers {
        let (mut candidates, mut refused) = (vec![], vec![]);
        for schedule in &form.schedules {
            let (bound, _) = self.bound_under(call, form, bound.clone(), schedule);
            let problem = self.problem(&form.stage, &bound);
            let fits = fits(&**schedule, &problem)
                .and_then(|()| self.has_room(form, *schedule))
                .and_then(|()| self.is_there(form, *schedule, &bound, choosing));
            match fits {
                Ok(()) => candidates.push(estimate_of_pieces(schedule, &problem)),
                Err(why) => refused.push((*schedule, why)),
            }
        }
        candidates.sort_by(|a, b| a.micros.total_cmp(&b.micros));
        Offers { candidates, refused }
    }

    fn is_there(&self, form: &Form, schedule: Schedule, bound: &Bound, choosing: Choosing<'_>) -> Result<(), Misfit> {
        let Some(is_there) = choosing.is_there else { return Ok(()) };
        let launched = self.launched(form, schedule, bound);
        let all = launched.iter().all(|own| is_there(&own.launch));
        if all { Ok(()) } else { Err(Misfit::NotThere) }
    }

    fn has_room(&self, form: &Form, schedule: Schedule) -> Result<(), Misfit> {
        let (isa, limit) = (self.target.isa, self.target.shared_bytes);
        let kernels = schedule.kernels(&form.stage, isa).into_iter();
        let needed = kernels.map(|kernel| form.facts.shared_bytes(&form.stage, kernel, isa)).max().unwrap_or(0);
        if needed <= limit { Ok(()) } else { Err(Misfit::SharedMemory { needed, limit }) }
    }

    fn name(&self, form: &Form, schedule: Schedule) -> (Key, String) {
        let mut known = self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let find = || {
            let key = form.facts.key(&form.stage).of_kernel(&*schedule, self.target.isa);
            (key, key.symbol(&form.stage, &*schedule))
        };
        known.entry((form.id, schedule)).or_insert_with(find).clone()
    }
}

/// The estimate of a schedule for all pieces of the rows.
fn estimate_of_pieces(schedule: &Schedule, problem: &Problem<'_>) -> Estimate {
    let pieces = schedule.pieces(problem);
    let of = |piece: &Piece| estimate(schedule, &problem.with(&piece.bound(problem.stage, problem.bound)));
    let mut all = of(&pieces[0]);
    if pieces.len() > 1 {
        all.micros = pieces.iter().map(|piece| of(piece).micros).sum();
        all.bytes = problem.bound.total_bytes(problem.stage);
        all.why = format!("{} pieces of the rows to save memory, each: {}", pieces.len(), all.why);
    }
    all
}

/// Whether a stage writes anything.
fn produces(stage: &Stage, bound: &Bound) -> bool {
    let outer = stage.outer_axes().iter().all(|a| bound.size(a) > 0);
    let finals = (0..stage.program.outputs.len()).any(|i| stage.is_final(i));
    outer && (finals || stage.axis().is_none_or(|axis| bound.size(axis) > 0))
}

/// Gives a launch the buffers that a plan has for it from `first` on, and the tensors from its piece of the rows on.
fn place(launch: &mut Launch, first: u32, piece: Piece, bound: &Bound) {
    for (i, role) in launch.schedule.roles(&launch.stage).into_iter().enumerate() {
        match role {
            Role::Scratch(k) => launch.args[i] = Arg::Buffer(first + k),
            Role::Pointer(tensor) => match piece.offset(&launch.stage, tensor, bound) {
                0 => {}
                offset => launch.offsets.push((i, offset)),
            },
            _ => {}
        }
    }
}
