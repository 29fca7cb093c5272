//! The outputs that a program must have.

use std::collections::HashMap;

use oplus_codegen::abi::Role;
use oplus_codegen::plan::{self, Arg, Launch, Planner};
use oplus_codegen::schedules::state_space::ends_len;
use oplus_codegen::schedules::{Schedule, StateSpace};
use oplus_codegen::schedules::{lower, lower_fast_tier};
use oplus_codegen::simulate::{Buffer, Order};
use oplus_codegen::stage::{Cut, CutKind};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Output, Program};
use oplus_dsl::testing::{inputs, relative_error};
use oplus_dsl::verify::verify;

use crate::device::{Placement, Region, Setting, Work, call, run, run_handing, run_kernels, run_on_region};

/// A valid program.
pub(crate) fn program(text: &str) -> Program {
    let program = oplus_dsl::parse::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&program).unwrap_or_else(|e| panic!("{program}\n{e:?}"));
    program
}

/// A test case: one program, how its tensors lie, and the order of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) program: &'a Program,
    pub(crate) sizes: &'a [usize],
    pub(crate) placement: Placement,
    pub(crate) order: Order,
}

impl Case<'_> {
    /// The stages under this schedule give what the program means.
    pub(crate) fn check(&self, schedule: Schedule) {
        self.compare(&self.work(schedule), Isa::Sm90a);
    }

    /// The stages of the program under this schedule.
    pub(crate) fn work(&self, schedule: Schedule) -> Work {
        let planner = Planner::new(self.program, &Target::H200).expect("cuts");
        let call = call(self.program, self.sizes, self.placement);
        let launch = |i| planner.launch(&call, i, schedule).unwrap_or_else(|e| panic!("{schedule}: {e}"));
        let cut = planner.cut(CutKind::Plain).expect("a cut");
        let launches: Vec<Launch> = (0..cut.stages.len()).map(launch).collect();
        Work { launches, buffers: self.buffers(cut), message_words: 1 << 12, beside: HashMap::new() }
    }

    /// The kernels of this schedule in the fast-compile tier compute the same bits as its own kernels.
    pub(crate) fn check_fast_tier(&self, schedule: Schedule) {
        let (work, given) = (self.work(schedule), given(self.program, self.sizes));
        let how = Setting { placement: self.placement, order: self.order, isa: Isa::Sm90a };
        let wanted = run(self.program, &work, &given, self.sizes, how);
        let none = Buffer::unwritten(Elem::F32, 0);
        let kernel = |launch: &Launch| {
            let found = lower_fast_tier(&launch.stage, &launch.schedule, Isa::Sm90a).expect("lowers");
            found.expect("look-back has a kernel that stands in")
        };
        let (found, _) = run_kernels(self.program, &work, &given, self.sizes, how, none, kernel);
        for (wanted, found) in wanted.iter().zip(&found) {
            for i in 0..wanted.data.len() {
                let (a, b) = (wanted.data.get(i), found.data.get(i));
                assert_eq!(a, b, "at {i} of {:?}, {schedule}\n{}", self.sizes, self.program);
            }
        }
    }

    /// Runs the kernels of this schedule several times on one region whose first launch has this tag, each time for other
    /// inputs, as launches of a stream follow one another. Each gives the bits of a run on a region of its own.
    pub(crate) fn check_shared_region(&self, schedule: Schedule, tag: u32) {
        let work = self.work(schedule);
        let how = Setting { placement: self.placement, order: self.order, isa: Isa::Sm90a };
        let kernel = |launch: &Launch| lower(&launch.stage, &launch.schedule, Isa::Sm90a).expect("lowers");
        let mut region = Region::new(work.message_words, tag);
        for turn in 0..4 {
            let given = given_from(self.program, self.sizes, turn);
            let none = Buffer::unwritten(Elem::F32, 0);
            let wanted = run(self.program, &work, &given, self.sizes, how);
            let (found, _) = run_on_region(self.program, &work, &given, self.sizes, how, (none, &mut region), kernel);
            assert_eq!(found, wanted, "launch {turn} from tag {tag}, {schedule}\n{}", self.program);
        }
    }

    /// The plan with the stages of states under this schedule gives what the program means.
    pub(crate) fn check_states(&self, schedule: Schedule) {
        self.check_states_on(schedule, &Target::H200);
    }

    /// The plan for a target with the stages of states under this schedule gives what the program means. Gives the numbers of
    /// segments of time and of pieces of the rows.
    pub(crate) fn check_states_on(&self, schedule: Schedule, target: &Target) -> (u32, usize) {
        let planner = Planner::new(self.program, target).expect("cuts");
        let call = call(self.program, self.sizes, self.placement);
        let plan = planner.plan_states(&call, schedule).unwrap_or_else(|e| panic!("{schedule}: {e}"));
        let segments = plan.steps.iter().map(|launch| launch.grid[1]).max().unwrap_or(1);
        let pieces = plan.steps.iter().filter(|launch| launch.schedule == schedule).count();
        let work = Work::of(plan);
        self.compare(&work, target.isa);
        (segments, pieces)
    }

    /// The outputs of the plan with the stages of states under this schedule.
    pub(crate) fn outputs_of_states(&self, schedule: Schedule, target: &Target) -> Vec<Array> {
        let planner = Planner::new(self.program, target).expect("cuts");
        let plan = planner.plan_states(&call(self.program, self.sizes, self.placement), schedule);
        let work = Work::of(plan.unwrap_or_else(|e| panic!("{schedule}: {e}")));
        let setting = Setting { placement: self.placement, order: self.order, isa: target.isa };
        run(self.program, &work, &given(self.program, self.sizes), self.sizes, setting)
    }

    /// The plan with a state_space schedule, its time cut into segments of so many tiles whatever a planner would choose, gives what
    /// the program means.
    pub(crate) fn check_segments(&self, schedule: StateSpace, tiles: u64) {
        let planner = Planner::new(self.program, &Target::H200).expect("cuts");
        let schedule = StateSpace { segmented: true, ..schedule };
        let mut plan = planner
            .plan_states(&call(self.program, self.sizes, self.placement), Schedule::StateSpace(schedule))
            .unwrap_or_else(|e| panic!("{schedule}: {e}"));
        for launch in &mut plan.steps {
            let Schedule::StateSpace(own) = launch.schedule else { continue };
            let sizes = launch.sizes();
            let size = |axis: Axis| sizes[axis.0 as usize];
            let time = launch.stage.axis().map_or(0, size) as u64;
            let segments = time.div_ceil(u64::from(own.steps)).div_ceil(tiles);
            let number = segments - u64::from(own.ends);
            launch.grid[1] = number.max(1) as u32;
            for (slot, arg) in launch.schedule.abi(&launch.stage).iter().zip(&mut launch.args) {
                match (slot.role, &arg) {
                    (Role::SegmentTiles, _) => *arg = Arg::I64(tiles as i64),
                    (Role::Scratch(0), Arg::Buffer(k)) => {
                        plan.buffers[*k as usize].len =
                            ends_len(&launch.stage, segments.max(2), size).expect("counted");
                    }
                    _ => {}
                }
            }
        }
        let work = Work::of(plan);
        self.compare(&work, Target::H200.isa);
    }

    /// The gradient of the program from states that its call has saved is the same as without. Gives whether they could be.
    pub(crate) fn check_handing(&self) -> bool {
        let gradient = adjoint(self.program).expect("differentiable");
        let (call, gradient_call) = (
            call(self.program, self.sizes, self.placement),
            call(&gradient, &self.gradient_sizes(&gradient), self.placement),
        );
        let planner = |program| Planner::new(program, &Target::H200).expect("cuts");
        let Some((plan, residual)) = planner(self.program).plan_saving(&call).expect("plans") else { return false };
        let backward = planner(&gradient);
        let Some(saved) = backward.plan_saved(&gradient_call, &residual).expect("plans") else { return false };
        let how = Setting { placement: self.placement, order: self.order, isa: Isa::Sm90a };
        let work = Work::of;
        let place = Buffer::unwritten(Elem::F32, residual.len as usize);
        let inputs = given(self.program, self.sizes);
        let (_, states) = run_handing(self.program, &work(plan), &inputs, self.sizes, how, place);
        let (sizes, inputs) = (self.gradient_sizes(&gradient), self.gradient_inputs(&gradient, &inputs));
        let whole = backward.plan(&gradient_call).expect("plans");
        let wanted = run(&gradient, &work(whole), &inputs, &sizes, how);
        let (found, _) = run_handing(&gradient, &work(saved), &inputs, &sizes, how, states);
        for ((wanted, found), output) in wanted.iter().zip(&found).zip(&gradient.outputs) {
            let place = differs(wanted, found, output.elem);
            assert_eq!(place, None, "`{}` of {:?}", output.name, self.sizes);
        }
        true
    }

    /// The sizes of the gradient's axes, which have the names of the program's.
    fn gradient_sizes(&self, gradient: &Program) -> Vec<usize> {
        let size = |name: &String| self.program.axis(name).map_or(1, |axis| self.sizes[axis.0 as usize]);
        gradient.axes.iter().map(size).collect()
    }

    /// The gradient's inputs: those of the program by name, some numbers for cotangents.
    fn gradient_inputs(&self, gradient: &Program, inputs: &[Array]) -> Vec<Array> {
        let own = given(gradient, &self.gradient_sizes(gradient));
        let input = |(param, own): (&oplus_dsl::ir::Param, Array)| {
            let place = self.program.params.iter().position(|p| p.name == param.name);
            place.map_or(own, |k| inputs[k].clone())
        };
        gradient.params.iter().zip(own).map(input).collect()
    }

    /// If the schedule fits the layout of a program of one stage, its kernel gives what the program means; gives whether it fits.
    pub(crate) fn check_if_it_fits(&self, schedule: Schedule, target: &Target) -> bool {
        let planner = Planner::new(self.program, target).expect("cuts");
        let launch = planner.launch(&call(self.program, self.sizes, self.placement), 0, schedule);
        let fits = launch.is_ok();
        launch.into_iter().for_each(|launch| {
            let work = Work { launches: vec![launch], buffers: vec![], message_words: 1 << 14, beside: HashMap::new() };
            self.compare(&work, target.isa);
        });
        fits
    }

    /// The plan with partial sums over the columns of pairs gives what the program means. Gives the number of partial sums.
    pub(crate) fn check_split(&self, target: &Target) -> i64 {
        let work = self.check_cut(CutKind::SplitK, target, 0).expect("partial sums");
        let parts = |launch: &Launch| {
            let axis = launch.stage.partial_axis?;
            let pointers = |arg: &&plan::Arg| matches!(arg, plan::Arg::I64(_));
            match launch.args.iter().filter(pointers).nth(axis.0 as usize)? {
                plan::Arg::I64(size) => Some(*size),
                _ => None,
            }
        };
        work.launches.iter().find_map(parts).expect("a stage of parts")
    }

    /// The plan of that rank with the program cut in one way gives what the program means; `None` where it is not cut so.
    pub(crate) fn check_cut(&self, how: CutKind, target: &Target, rank: usize) -> Option<Work> {
        let planner = Planner::new(self.program, target).expect("cuts");
        let plan = planner.plan_of(how, &call(self.program, self.sizes, self.placement), rank).expect("plans")?;
        let work = Work::of(plan);
        self.compare(&work, target.isa);
        Some(work)
    }

    /// The plan for a target gives what the program means.
    pub(crate) fn check_plan(&self, target: &Target) {
        self.check_ranked(target, 0);
    }

    /// The plan of that rank, 0 being the fastest, gives what the program means.
    pub(crate) fn check_ranked(&self, target: &Target, rank: usize) {
        let planner = Planner::new(self.program, target).expect("cuts");
        let call = call(self.program, self.sizes, self.placement);
        let plan = planner.plan_ranked(&call, rank).unwrap_or_else(|e| panic!("{}{e}", self.program));
        let work = Work::of(plan);
        self.compare(&work, target.isa);
    }

    /// The plan, in pieces wherever buffers would take more than four times the memory of the call, gives what the program means.
    pub(crate) fn check_in_pieces(&self, target: &Target) {
        let mut planner = Planner::new(self.program, target).expect("cuts");
        planner.set_spare(0);
        let call = call(self.program, self.sizes, self.placement);
        let plan = planner.plan(&call).unwrap_or_else(|e| panic!("{}{e}", self.program));
        let work = Work::of(plan);
        self.compare(&work, target.isa);
    }

    /// The plan with a split axis, and both axes cut in one way, gives what the program means, by the root mean
    /// square of errors. Gives its schedules.
    pub(crate) fn check_split_axis(&self, how: CutKind, target: &Target, axis: Axis, outer: i64) -> Vec<Schedule> {
        let planner = Planner::new(self.program, target).expect("cuts");
        let call = call(self.program, self.sizes, self.placement);
        let plan = planner.plan_split(how, &call, axis, outer).expect("plans").expect("a split axis");
        let schedules = plan.steps.iter().map(|launch| launch.schedule).collect();
        let work = Work::of(plan);
        for (wanted, found, output) in self.results(&work, target.isa) {
            let error = relative_error(&wanted, &found);
            assert!(error < 1e-4, "`{}` is off by {error}: {:?}\n{}", output.name, self.sizes, self.program);
        }
        schedules
    }

    /// The temporary tensors of a cut.
    fn buffers(&self, cut: &Cut) -> Vec<plan::Buffer> {
        let size = |axes: &[Axis]| axes.iter().map(|a| self.sizes[a.0 as usize] as u64).product();
        cut.buffers.iter().map(|b| plan::Buffer { elem: b.elem, len: size(&b.axes) }).collect()
    }

    fn compare(&self, work: &Work, isa: Isa) {
        for (wanted, found, output) in self.results(work, isa) {
            if let Some(place) = differs(&wanted, &found, output.elem) {
                let schedules: Vec<String> = work.launches.iter().map(|l| l.schedule.to_string()).collect();
                let (a, b) = (wanted.data.get(place), found.data.get(place));
                let text = format!("`{}` at {place}: {b} instead of {a}", output.name);
                panic!("{text}\n{:?} {:?}\n{}\n{}", self.sizes, self.placement, schedules.join("\n"), self.program);
            }
        }
    }

    /// Every output as the interpreter gives it, and as the launches do.
    fn results(&self, work: &Work, isa: Isa) -> Vec<(Array, Array, &Output)> {
        let given: Vec<Array> = given(self.program, self.sizes);
        let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(self.sizes.iter().copied()).collect();
        let optional: Vec<Option<Array>> = given.iter().cloned().map(Some).collect();
        let wanted = interpret_sized(self.program, &optional, &named, Mode::default()).expect("runs");
        let setting = Setting { placement: self.placement, order: self.order, isa };
        let found = run(self.program, work, &given, self.sizes, setting);
        let results = wanted.into_iter().zip(found).zip(&self.program.outputs);
        results.map(|((wanted, found), output)| (wanted, found, output)).collect()
    }
}

/// Inputs for all parameters, those with defaults too.
pub(crate) fn given(program: &Program, sizes: &[usize]) -> Vec<Array> {
    given_from(program, sizes, 7)
}

/// Inputs of another seed.
fn given_from(program: &Program, sizes: &[usize], seed: u64) -> Vec<Array> {
    let mut required = program.clone();
    required.params.iter_mut().for_each(|p| p.default = None);
    let mut arrays: Vec<Array> = inputs(&required, sizes, seed).into_iter().flatten().collect();
    for (array, param) in arrays.iter_mut().zip(&program.params) {
        if let Data::Float(values) = &mut array.data {
            values.iter_mut().for_each(|x| *x = rounded(*x, param.elem));
        }
    }
    arrays
}

/// A number of the element type.
pub(crate) fn rounded(x: f64, elem: Elem) -> f64 {
    match elem {
        Elem::F32 => f64::from(x as f32),
        Elem::Bf16 => half::bf16::from_f64(x).to_f64(),
        Elem::F16 => half::f16::from_f64(x).to_f64(),
        _ => x,
    }
}

/// The first element that is not what it should be.
fn differs(wanted: &Array, found: &Array, elem: Elem) -> Option<usize> {
    assert_eq!(wanted.sizes, found.sizes);
    let tolerance = match elem {
        Elem::F64 => 1e-9,
        Elem::Bf16 => 2e-2,
        Elem::F16 => 4e-3,
        _ => 2e-4,
    };
    let equal = |i: usize| match (wanted.data.get(i).as_f64(), found.data.get(i).as_f64()) {
        (a, b) if elem.is_float() => a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * (1.0 + a.abs()),
        (a, b) => a == b,
    };
    (0..wanted.data.len()).find(|i| !equal(*i))
}
