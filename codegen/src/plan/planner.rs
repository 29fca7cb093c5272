//! From a call to launches.

use std::iter;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op, Param, Program};
use oplus_dsl::specialize::without_param;

use super::choosing::{Choosing, IsThere};
use super::division::Division;
use super::residual::{Residual, is_save, saved, saving, with_saved};
use super::sizes::{count, reach, shape};
use super::{Arg, Call, Launch, Layout, Plan, PlanError};
use crate::schedules::Schedule;
use crate::stage::{
    Cut, CutError, Stage, collapse, cut, cut_apart, cut_chunked, cut_contracted, cut_gathered, cut_ordered, cut_paired,
    cut_parted, cut_split, cut_two_way,
};
use crate::target::Target;

/// At most so many schedules of a two-way stage fit a call.
const SCHEDULES: usize = 12;

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

/// The ways in which a plan may cut a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Cuts {
    /// Without contractions.
    pub plain: Cut,
    /// With sums kept with their scans, if there are such and every stage that has them is of a kind that one schedule takes.
    pub contracted: Option<Cut>,
    /// With a two-way stage, if there is one and the schedule takes it.
    pub two_way: Option<Cut>,
    /// With sums over pairs kept with what they sum, if there are such and the schedule takes them.
    pub paired: Option<Cut>,
    /// The same with a stage for each of these sums, if one has several.
    pub apart: Option<Cut>,
    /// The same with sums over an axis that repeats pairs, if there are such.
    pub gathered: Option<Cut>,
    /// The same with their columns in parts, if there is one such stage.
    pub split: Option<Cut>,
    /// With a two-way stage that takes all sums, if there is one and chunks take it.
    pub chunked: Option<Cut>,
    /// With sums over columns in parts, if there are such and one kernel takes them with their scan.
    pub parted: Option<Cut>,
}

impl Cuts {
    /// All of them.
    pub fn all(self) -> impl Iterator<Item = Cut> {
        let Cuts { plain, contracted, two_way, paired, apart, gathered, split, chunked, parted } = self;
        let others = [contracted, two_way, paired, apart, gathered, split, chunked, parted];
        iter::once(plain).chain(others.into_iter().flatten())
    }
}

/// Cuts a program in every way in which it can run.
pub fn cuts(program: &Program) -> Result<Cuts, CutError> {
    let states = |s: &Stage| s.kind().walk().is_ok() || s.kind().matrices().is_ok();
    let known = |s: &Stage| s.state_axis().is_none() || states(s);
    let whole = |cut: &Cut| cut.stages.iter().all(known);
    let both = |cut: &Cut| cut.stages.iter().all(|s| s.two_way().is_none() || s.kind().walk_back().is_ok());
    let in_parts = |s: &Stage| {
        collapse(s).map_or_else(|| s.kind().parted().is_ok(), |merged| merged.stage.kind().parted().is_ok())
    };
    let parts = |cut: &Cut| cut.stages.iter().all(|s| s.part_axis.is_none() || in_parts(s));
    let (contracted, two_way) = (cut_contracted(program)?.filter(whole), cut_two_way(program)?.filter(both));
    let pairs = |cut: &Cut| cut.stages.iter().all(|s| !s.is_paired() || s.kind().pairs().is_ok());
    let (paired, apart) = (cut_paired(program)?.filter(pairs), cut_apart(program)?.filter(pairs));
    let (gathered, split) = (cut_gathered(program)?.filter(pairs), cut_split(program)?.filter(pairs));
    let parted = cut_parted(program)?.filter(parts);
    let back = |s: &Stage| if s.two_way().is_some() { s.kind().matrices_back().is_ok() } else { known(s) };
    let back = |cut: &Cut| cut.stages.iter().all(back);
    let chunked = cut_chunked(program)?.into_iter().find(back);
    Ok(Cuts { plain: cut(program)?, contracted, two_way, paired, apart, gathered, split, chunked, parted })
}

/// A program made ready for planning.
///
/// Parameters that calls leave out must be gone from it (`oplus_dsl::specialize`), or unread.
#[derive(Debug)]
pub struct Planner {
    program: Program,
    target: Target,
    plain: Division,
    contracted: Option<Division>,
    two_way: Option<Division>,
    paired: Option<Division>,
    apart: Option<Division>,
    gathered: Option<Division>,
    split: Option<Division>,
    chunked: Option<Division>,
    parted: Option<Division>,
}

impl Planner {
    /// Cuts a program and lists its schedules on a target.
    pub fn new(program: &Program, target: &Target) -> Result<Planner, PlanError> {
        let cuts = cuts(program)?;
        let division = |cut| Division::new(cut, target);
        Ok(Planner {
            program: program.clone(),
            target: *target,
            plain: division(cuts.plain),
            contracted: cuts.contracted.map(division),
            two_way: cuts.two_way.map(division),
            paired: cuts.paired.map(division),
            apart: cuts.apart.map(division),
            gathered: cuts.gathered.map(division),
            split: cuts.split.map(division),
            chunked: cuts.chunked.map(division),
            parted: cuts.parted.map(division),
        })
    }

    /// A planner whose plans combine one element after the other, in all scans and reductions, by the operations of the
    /// program and no others. A call in pieces, each from the state that the one before left, and a call of one-step
    /// forms give the bits of the whole. States that the program sums away are stored in between.
    pub fn ordered(program: &Program, target: &Target) -> Result<Planner, PlanError> {
        Ok(Planner {
            program: program.clone(),
            target: *target,
            plain: Division::ordered(cut_ordered(program)?, target),
            contracted: None,
            two_way: None,
            paired: None,
            apart: None,
            gathered: None,
            split: None,
            chunked: None,
            parted: None,
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The stages and the buffers between them, without sums kept with their scans.
    pub fn cut(&self) -> &Cut {
        &self.plain.cut
    }

    /// The same with sums over states kept with their scans, if the program has such and they are of a kind that one kernel can take.
    pub fn contracted_cut(&self) -> Option<&Cut> {
        self.contracted.as_ref().map(|division| &division.cut)
    }

    /// The same with a two-way stage, if the program has one that the schedule takes.
    pub fn two_way_cut(&self) -> Option<&Cut> {
        self.two_way.as_ref().map(|division| &division.cut)
    }

    /// The same with sums over pairs kept with what they sum, if the program has such that the schedule takes.
    pub fn paired_cut(&self) -> Option<&Cut> {
        self.paired.as_ref().map(|division| &division.cut)
    }

    /// The same with a two-way stage that takes all sums, if the program has one that chunks take.
    pub fn chunked_cut(&self) -> Option<&Cut> {
        self.chunked.as_ref().map(|division| &division.cut)
    }

    /// The plan of a call by chunks; `None` where there is none.
    ///
    /// For tests and measurements, as [`Planner::launch`].
    pub fn plan_chunked(&self, call: &Call, rank: usize) -> Option<Plan> {
        self.chunked.as_ref().and_then(|division| division.plan(call, Choosing::ranked(rank)).ok())
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
        let plan = self.contracted.as_ref().and_then(|division| division.plan(call, choosing).ok());
        Ok(plan.and_then(|plan| saving(&self.program, plan, call, self.target.isa)))
    }

    fn start_from(
        &self,
        call: &Call,
        residual: &Residual,
        is_there: Option<&IsThere<'_>>,
    ) -> Result<Option<Plan>, PlanError> {
        self.check(call)?;
        let Some(division) = &self.two_way else { return Ok(None) };
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
        let of =
            |division: &Option<Division>| division.as_ref().and_then(|division| division.plan(call, choosing).ok());
        let (plain, two_way) = (self.plain.plan(call, choosing), of(&self.two_way));
        // Stages that store all states may be fast, but where states are many they take memory without bound.
        let contracted = of(&self.contracted);
        let leanest = match choosing.is_there {
            None => least_bytes([&two_way, &contracted]),
            Some(_) => {
                let any = |d: &Option<Division>| d.as_ref()?.plan(call, Choosing::ranked(choosing.rank)).ok();
                least_bytes([&any(&self.two_way), &any(&self.contracted)])
            }
        };
        let room = leanest.map(|least| least.max(self.room(call)));
        let lean = |plan: &Plan| room.is_none_or(|room| plan.buffer_bytes() <= room);
        let stored = [contracted, of(&self.parted)].into_iter().flatten().filter(lean);
        let pairs = [&self.paired, &self.apart, &self.gathered, &self.split];
        let fused = [two_way, of(&self.chunked)].into_iter().chain(pairs.map(of)).flatten();
        let other = stored.chain(fused).min_by(|a, b| a.micros().total_cmp(&b.micros()));
        match (plain, other) {
            (Ok(plain), Some(other)) if lean(&plain) && plain.micros() <= other.micros() => Ok(plain),
            (_, Some(other)) => Ok(other),
            (plain, None) => plain,
        }
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

    /// The launch of one stage, its axes as they are, under any schedule; `Err` says why that is not possible. Stages with
    /// contractions, for the states schedule, are those of [`Planner::contracted_cut`].
    ///
    /// For tests and measurements: [`Planner::plan`] chooses among the [`variants`](super::variants()) of a stage.
    pub fn launch(&self, call: &Call, stage: usize, schedule: Schedule) -> Result<Launch, PlanError> {
        self.division_for(&schedule)?.launch(call, stage, schedule)
    }

    /// The way to cut the program whose stages a schedule takes.
    fn division_for(&self, schedule: &Schedule) -> Result<&Division, PlanError> {
        let fused = [&self.contracted, &self.two_way, &self.gathered, &self.paired, &self.chunked, &self.parted];
        let mut all = iter::once(&self.plain).chain(fused.into_iter().flatten());
        all.find(|division| division.is_for(schedule)).ok_or(PlanError::NoStage { schedule: *schedule })
    }

    /// The plan of a call with the columns of pairs in parts, whether or not that is fastest; `None` where there is none.
    ///
    /// For tests and measurements, as [`Planner::launch`].
    pub fn plan_split(&self, call: &Call) -> Result<Option<Plan>, PlanError> {
        self.check(call)?;
        self.split.as_ref().map(|division| division.plan(call, Choosing::default())).transpose()
    }

    /// The plan of a call in which the stages with states have this schedule, a states or a two-way one; `Err` says why that
    /// is not possible.
    ///
    /// For tests and measurements, as [`Planner::launch`].
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
                Some(layout) => self.check_layout(call, (&param.name, param.elem), &param.axes, layout)?,
                None if self.is_read(i as u32) => return Err(PlanError::Missing(param.name.clone())),
                None => {}
            }
        }
        for (output, layout) in program.outputs.iter().zip(&call.outputs) {
            self.check_layout(call, (&output.name, output.elem), &output.axes, layout)?;
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
        (name, elem): (&str, Elem),
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

/// The temporary memory of the leanest plan.
fn least_bytes(plans: [&Option<Plan>; 2]) -> Option<u64> {
    plans.into_iter().flatten().map(Plan::buffer_bytes).min()
}
