//! Plans in words and as a picture: what is computed, by which launches, and why so.

use std::fmt::{self, Display, Formatter};

use oplus_dsl::adjoint::equations;
use oplus_dsl::ir::{Axis, Program};

use crate::plan::{Choice, Launch, Plan};
use crate::schedule::{
    Chunkwise, Columns, Flash, Form, LookBack, Map, Pass, Rows, Schedule, StateSpace, StateSpaceBackward, Sweep, WARP,
};
use crate::stage::{Sink, Source, Stage};
use crate::words::{Bytes, counted, width};

/// What a plan does and why; prints as text: the equations, and the launches with the reasons for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The program's name.
    pub name: String,
    /// The program as equations.
    pub equations: String,
    /// The launches, in order.
    pub launches: Vec<Explained>,
    /// Stages that are not launched because they produce nothing for these sizes.
    pub skipped: usize,
    /// Bytes of temporary tensors.
    pub temporary_bytes: u64,
    /// 64-bit words for messages between blocks.
    pub message_words: u64,
    /// What plan this one is taken instead of, and why; for whoever knows which kernels there are to fill in.
    pub instead_of: Option<String>,
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The stage's name.
    pub name: String,
    /// What it does, in a few words.
    pub task: String,
    /// The tensors that it reads.
    pub reads: Vec<String>,
    /// The tensors that it writes.
    pub writes: Vec<String>,
    /// The stage as equations.
    pub equations: String,
    /// How the work is divided, in words.
    pub division: String,
    /// Blocks, threads and shared memory, in words.
    pub grid: String,
    /// The kernel's symbol.
    pub symbol: String,
    /// The schedules that fit, the one taken first, with microseconds and their reason.
    pub candidates: Vec<(String, f64, String)>,
    /// The schedules that do not fit, and why.
    pub refused: Vec<(String, String)>,
    /// Bytes of the tensors read and written, each once.
    pub bytes: u64,
    /// Facts of the compiled kernel, each with its name; for whoever has compiled it to fill in.
    pub facts: Vec<(String, String)>,
}

impl Explanation {
    /// The explanation of a program's plan.
    pub fn of(program: &Program, plan: &Plan) -> Explanation {
        let chosen = plan.choices.iter().filter(|c| c.step.is_some());
        let temporary = |b: &crate::plan::Buffer| b.len * b.elem.bytes().unwrap_or(8) as u64;
        Explanation {
            name: program.name.clone(),
            equations: equations(program),
            launches: plan.steps.iter().zip(chosen).map(|(launch, choice)| Explained::of(launch, choice)).collect(),
            skipped: plan.choices.iter().filter(|c| c.step.is_none()).count(),
            temporary_bytes: plan.buffers.iter().map(temporary).sum(),
            message_words: plan.message_words,
            instead_of: None,
        }
    }

    /// The launches without the equations of the whole program.
    pub fn plan(&self) -> PlanInWords<'_> {
        PlanInWords(self)
    }

    /// The sum of the launches' estimates, microseconds.
    pub fn micros(&self) -> f64 {
        self.launches.iter().filter_map(|l| l.candidates.first()).map(|(_, micros, _)| micros).sum()
    }
}

impl Explained {
    fn of(launch: &Launch, choice: &Choice) -> Explained {
        let Launch { stage, schedule, grid, threads, shared_bytes, .. } = launch;
        let shared = if *shared_bytes > 0 { format!(", {shared_bytes} bytes of shared memory") } else { String::new() };
        Explained {
            name: stage.program.name.clone(),
            task: task(stage),
            reads: reads(stage),
            writes: writes(stage),
            equations: equations(&stage.program),
            division: division(stage, schedule, &launch.sizes()),
            grid: format!(
                "{} of {threads} threads{shared}",
                counted(grid.map(u64::from).iter().product::<u64>(), "block")
            ),
            symbol: launch.symbol.clone(),
            candidates: candidates(choice),
            refused: refused(stage, choice),
            bytes: choice.candidates.first().map_or(0, |c| c.bytes),
            facts: vec![],
        }
    }
}

/// Every schedule that fits, once, though it may fit in several ways: with the least estimate.
fn candidates(choice: &Choice) -> Vec<(String, f64, String)> {
    let mut candidates: Vec<(String, f64, String)> = vec![];
    for estimate in &choice.candidates {
        let schedule = estimate.schedule.to_string();
        if candidates.iter().all(|(known, ..)| *known != schedule) {
            candidates.push((schedule, estimate.micros, estimate.why.clone()));
        }
    }
    candidates
}

/// Every schedule that fits in no way, once, and why.
fn refused(stage: &Stage, choice: &Choice) -> Vec<(String, String)> {
    let fits = |schedule: &Schedule| choice.candidates.iter().any(|c| c.schedule == *schedule);
    let own = choice.refused.iter().filter(|(schedule, _)| !fits(schedule));
    let mut refused: Vec<(String, String)> = vec![];
    for (schedule, why) in own.map(|(s, why)| (s.to_string(), why.clone())).chain(no_chunks(stage)) {
        if refused.iter().all(|(known, _)| *known != schedule) {
            refused.push((schedule, why));
        }
    }
    refused
}

/// Why states that are summed away are not computed by products of matrices, if they are not.
fn no_chunks(stage: &Stage) -> Option<(String, String)> {
    let why = match (stage.two_way(), stage.state_axis()) {
        (Some(_), _) => stage.kind().matrices_back().err()?,
        (None, axis) => axis.and_then(|_| stage.kind().matrices().err())?,
    };
    Some(("chunkwise".to_owned(), why.to_string()))
}

/// Map, scan or reduction, along what and by what.
fn task(stage: &Stage) -> String {
    let Some(scan) = stage.scan() else { return "map".to_owned() };
    let operator = &stage.program.operator(scan.operator).name;
    let axis = stage.program.axis_name(scan.axis);
    let direction = if scan.reverse { "reverse " } else { "" };
    let kind = if stage.is_reduction() { "reduction" } else { "scan" };
    let state = stage.state_axis().map(|a| format!(", states summed over {}", stage.program.axis_name(a)));
    let kind = if stage.two_way().is_some() { "scans both ways" } else { kind };
    format!("{direction}{kind} along {axis} by {operator}{}", state.unwrap_or_default())
}

fn tensor(stage: &Stage, name: &str, axes: &[Axis], elem: oplus_dsl::Elem) -> String {
    let axes: Vec<&str> = axes.iter().map(|a| stage.program.axis_name(*a)).collect();
    if axes.is_empty() { format!("{name}: {elem}") } else { format!("{name}: {elem}[{}]", axes.join(", ")) }
}

fn reads(stage: &Stage) -> Vec<String> {
    let note = |source: &Source| if matches!(source, Source::Buffer(_)) { " (temporary)" } else { "" };
    let params = stage.program.params.iter().zip(&stage.sources);
    params.map(|(p, source)| tensor(stage, &p.name, &p.axes, p.elem) + note(source)).collect()
}

fn writes(stage: &Stage) -> Vec<String> {
    let note = |sink: &Sink| if matches!(sink, Sink::Buffer(_)) { " (temporary)" } else { "" };
    let outputs = stage.program.outputs.iter().zip(&stage.sinks);
    outputs.map(|(o, sink)| tensor(stage, &o.name, &o.axes, o.elem) + note(sink)).collect()
}

/// How a schedule divides the work.
fn division(stage: &Stage, schedule: &Schedule, sizes: &[i64]) -> String {
    let outer: i64 = stage.outer_axes().iter().map(|a| sizes[a.0 as usize]).product();
    let length = stage.axis().map_or(1, |a| sizes[a.0 as usize]);
    let axis = |lane: u32| stage.program.axes[lane as usize].as_str();
    let rows = counted(outer, "row");
    match schedule {
        Schedule::Map(Map { lane, vector, vectors, .. }) => {
            format!("{}; a thread takes {vectors} × {vector} along {}", counted(outer, "point"), axis(*lane))
        }
        Schedule::Rows(s) => format!("{rows} of {length}; {}", team(s)),
        Schedule::LookBack(s @ LookBack { scan_warps, vectors, vector, stages, .. }) => format!(
            "{rows} of {length}; tiles of {} = {} × {vectors} × {WARP} lanes × {vector}, {stages} in flight",
            s.tile(),
            counted(scan_warps, "warp")
        ),
        Schedule::Columns(Columns { lane, form: Form::Walk, vector, steps, .. }) => {
            format!(
                "{} along {} of {length}; a thread walks {vector} with {steps} steps in flight",
                counted(outer, "column"),
                axis(*lane)
            )
        }
        Schedule::StateSpace(s @ StateSpace { states, lanes, steps, stages, segmented, ends, .. }) => {
            let cut = match (segmented, ends) {
                (_, true) => "; what each segment of time does to its states",
                (true, false) => "; in segments of time",
                (false, false) => "",
            };
            format!(
                "{rows} of {length}, {} per block; {} × {} per row; tiles of {steps} steps, {stages} in flight{cut}",
                s.rows(),
                counted(lanes, "lane"),
                counted(states, "state")
            )
        }
        Schedule::Flash(s @ Flash { columns, stages, .. }) => {
            let parts =
                stage.part_axis.map(|part| format!(", divided into {}", counted(sizes[part.0 as usize], "part")));
            let parts = parts.unwrap_or_default();
            format!("{} per block; tiles of {columns} columns{parts}, {stages} in flight", counted(s.rows(), "row"))
        }
        Schedule::StateSpaceBackward(s) => two_way(s, &rows, length),
        Schedule::Chunkwise(s @ Chunkwise { stages, .. }) => {
            let ends = if s.ends { ", only their ends" } else { "" };
            format!("a block per segment of a recurrence{ends}; chunks of {} times, {stages} in flight", s.times())
        }
        Schedule::ChunkwiseBackward(s) => match s.sweep {
            Sweep::StateEnds => "a block per segment of a recurrence, only their ends".to_owned(),
            Sweep::States => "a block per segment of a recurrence; the state before every 64 times saved".to_owned(),
            Sweep::CotangentEnds => "a block per segment of a recurrence, backwards, only their ends".to_owned(),
            Sweep::Cotangents => {
                "a block per segment of a recurrence, backwards; the state's cotangent after every 64 times saved"
                    .to_owned()
            }
            Sweep::Gradients => "a block per 64 times and group of heads; head by head".to_owned(),
        },
        Schedule::Columns(s) => format!(
            "{} along {} of {length}; tiles of {} steps × {} columns, {} in flight",
            counted(outer, "column"),
            axis(s.lane),
            s.tile_rows(),
            s.tile_columns(),
            s.stages
        ),
    }
}

fn two_way(schedule: &StateSpaceBackward, rows: &str, length: i64) -> String {
    let StateSpaceBackward { pass, states, rows: own, lanes, steps, stages, segmented, .. } = *schedule;
    let what = match pass {
        Pass::Ends => "what each segment of time does to its states",
        Pass::Save => "every eighth state saved",
        Pass::Carry => "what each segment of time does to its cotangent",
        Pass::Walk => "every eight steps computed anew and walked back",
        Pass::Sum if segmented => return "the sums of all blocks and segments".to_owned(),
        Pass::Sum => return "the sums over rows of all blocks".to_owned(),
    };
    format!(
        "{rows} of {length}, {} per block; {} × {} × {}; tiles of {steps} steps, {stages} in flight; {what}",
        schedule.block_rows(),
        counted(lanes, "lane"),
        counted(own, "row"),
        counted(states, "state")
    )
}

fn team(schedule: &Rows) -> String {
    let Rows { row_warps, lanes, rows, vector, vectors, .. } = *schedule;
    let warps = if row_warps > 1 { format!("{row_warps} warps × ") } else { String::new() };
    let rows = if rows > 1 { format!(", {rows} rows at once") } else { String::new() };
    format!("tiles of {} = {warps}{vectors} × {} × {vector}{rows}", schedule.tile(), counted(lanes, "lane"))
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n\n{}", self.equations.trim_end(), self.plan())
    }
}

/// The launches of an explanation with the reasons for each; prints as text.
pub struct PlanInWords<'a>(&'a Explanation);

impl Display for PlanInWords<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Explanation { launches, skipped, temporary_bytes, instead_of, .. } = self.0;
        for (i, launch) in launches.iter().enumerate() {
            launch.picture(f, i + 1, launches.len())?;
        }
        if *skipped > 0 {
            let verb = if *skipped == 1 { "produces" } else { "produce" };
            writeln!(f, "{} {verb} nothing for these sizes", counted(skipped, "stage"))?;
        }
        instead_of.iter().try_for_each(|plan| writeln!(f, "taken instead of {plan}"))?;
        let total: u64 = launches.iter().map(|l| l.bytes).sum();
        let (launches, total, micros) = (counted(launches.len(), "launch"), Bytes(total), self.0.micros());
        write!(f, "{launches}, {total}, about {micros:.1} µs")?;
        if *temporary_bytes > 0 {
            write!(f, ", {} of temporary tensors", Bytes(*temporary_bytes))?;
        }
        Ok(())
    }
}

impl Explained {
    /// A box with what goes in and out, and below it why it is so.
    fn picture(&self, f: &mut Formatter<'_>, number: usize, of: usize) -> fmt::Result {
        let title = format!(" {number} {}: {} ", self.name, self.task);
        let mut lines = vec![];
        lines.extend(self.reads.iter().map(|t| format!("→ {t}")));
        if of > 1 {
            lines.extend(self.equations.lines().map(|line| format!("  {line}")));
        }
        lines.extend(self.writes.iter().map(|t| format!("← {t}")));
        lines.extend([self.division.clone(), format!("{}, {}", self.grid, Bytes(self.bytes))]);
        let all = lines.iter().map(|l| width(l)).max().unwrap_or(0).max(width(&title));
        writeln!(f, "┌─{title}{}─┐", "─".repeat(all - width(&title)))?;
        for line in lines {
            writeln!(f, "│ {line}{} │", " ".repeat(all - width(&line)))?;
        }
        writeln!(f, "└─{}─┘", "─".repeat(all))?;
        self.reasons(f)
    }

    fn reasons(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "  kernel {}", self.symbol)?;
        self.facts.iter().try_for_each(|(name, fact)| writeln!(f, "    {name}: {fact}"))?;
        for (i, (schedule, micros, why)) in self.candidates.iter().enumerate() {
            let mark = if i == 0 { "✓" } else { " " };
            writeln!(f, "  {mark} {micros:8.1} µs  {schedule}: {why}")?;
        }
        self.refused.iter().try_for_each(|(schedule, why)| writeln!(f, "  ✗              {schedule}: {why}"))?;
        writeln!(f)
    }
}
