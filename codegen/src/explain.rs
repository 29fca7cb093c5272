//! Plans in words and as a picture: what is computed, by which launches, and why so.

use std::fmt::{self, Display, Formatter};

use oplus_dsl::adjoint::equations;
use oplus_dsl::ir::{Axis, Program};

use crate::lower::chunks::{self, back::BackForm};
use crate::plan::{Choice, Launch, Plan};
use crate::schedule::{Chunks, Columns, Form, LookBack, Map, Pairs, Pass, Rows, Schedule, States, Sweep, TwoWay, WARP};
use crate::stage::{Kind, Sink, Source, Stage};

/// How many of the schedules that fit are printed.
const SHOWN: usize = 4;

/// What a plan does and why; prints as text.
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
            grid: format!("{} blocks of {threads} threads{shared}", grid.map(u64::from).iter().product::<u64>()),
            symbol: launch.symbol.clone(),
            candidates: choice.candidates.iter().map(|c| (c.schedule.to_string(), c.micros, c.why.clone())).collect(),
            refused: choice
                .refused
                .iter()
                .map(|(s, why)| (s.to_string(), why.clone()))
                .chain(no_chunks(stage))
                .collect(),
            bytes: choice.candidates.first().map_or(0, |c| c.bytes),
            facts: vec![],
        }
    }
}

/// Why states that are summed away are not computed by products of matrices, if they are not.
fn no_chunks(stage: &Stage) -> Option<(String, String)> {
    let why = match (stage.two_way(), stage.state_axis()) {
        (Some(_), _) => BackForm::of(stage).err()?,
        (None, axis) => axis.and_then(|_| chunks::Form::of(stage).err())?,
    };
    Some(("chunks".to_owned(), why.to_string()))
}

/// Map, scan or reduction, along what and by what.
fn task(stage: &Stage) -> String {
    let Some(scan) = stage.scan() else { return "map".to_owned() };
    let operator = &stage.program.operator(scan.operator).name;
    let axis = stage.program.axis_name(scan.axis);
    let direction = if scan.reverse { "reverse " } else { "" };
    let kind = if stage.kind() == Kind::Reduce { "reduction" } else { "scan" };
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
    match schedule {
        Schedule::Map(Map { lane, vector, vectors, .. }) => {
            format!("{outer} points; a thread takes {vectors} × {vector} along {}", axis(*lane))
        }
        Schedule::Rows(s) => format!("{outer} rows of {length}; {}", team(s)),
        Schedule::LookBack(s @ LookBack { scan_warps, vectors, vector, stages, .. }) => format!(
            "{outer} rows of {length}; tiles of {} = {scan_warps} warps × {vectors} × {WARP} lanes × {vector}, {stages} in flight",
            s.tile()
        ),
        Schedule::Columns(Columns { lane, form: Form::Walk, vector, steps, .. }) => {
            format!(
                "{outer} columns along {} of {length}; a thread walks {vector} with {steps} steps in flight",
                axis(*lane)
            )
        }
        Schedule::States(s @ States { states, lanes, steps, stages, segmented, ends, .. }) => {
            let cut = match (segmented, ends) {
                (_, true) => "; what each segment of time does to its states",
                (true, false) => "; in segments of time",
                (false, false) => "",
            };
            format!(
                "{outer} rows of {length}, {} per block; {lanes} lanes × {states} states per row; tiles of {steps} steps, \
                 {stages} in flight{cut}",
                s.rows()
            )
        }
        Schedule::Pairs(s @ Pairs { columns, stages, .. }) => {
            let parts = stage.part_axis.map(|part| format!(", divided into {} parts", sizes[part.0 as usize]));
            let parts = parts.unwrap_or_default();
            format!("{} rows per block; tiles of {columns} columns{parts}, {stages} in flight", s.rows())
        }
        Schedule::TwoWay(s) => two_way(s, outer, length),
        Schedule::Chunks(s @ Chunks { stages, .. }) => {
            let ends = if s.ends { ", only their ends" } else { "" };
            format!("a block per segment of a recurrence{ends}; chunks of {} times, {stages} in flight", s.times())
        }
        Schedule::ChunksBack(s) => match s.sweep {
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
            "{outer} columns along {} of {length}; tiles of {} steps × {} columns, {} in flight",
            axis(s.lane),
            s.tile_rows(),
            s.tile_columns(),
            s.stages
        ),
    }
}

fn two_way(schedule: &TwoWay, rows: i64, length: i64) -> String {
    let TwoWay { pass, states, rows: own, lanes, steps, stages, segmented, .. } = *schedule;
    let what = match pass {
        Pass::Ends => "what each segment of time does to its states",
        Pass::Save => "every eighth state saved",
        Pass::Carry => "what each segment of time does to its cotangent",
        Pass::Walk => "every eight steps computed anew and walked back",
        Pass::Sum if segmented => return "the sums of all blocks and segments".to_owned(),
        Pass::Sum => return "the sums over rows of all blocks".to_owned(),
    };
    format!(
        "{rows} rows of {length}, {} per block; {lanes} lanes × {own} rows × {states} states; tiles of {steps} steps, \
         {stages} in flight; {what}",
        schedule.block_rows()
    )
}

fn team(schedule: &Rows) -> String {
    let Rows { row_warps, lanes, rows, vector, vectors, .. } = *schedule;
    let warps = if row_warps > 1 { format!("{row_warps} warps × ") } else { String::new() };
    let rows = if rows > 1 { format!(", {rows} rows at once") } else { String::new() };
    format!("tiles of {} = {warps}{vectors} × {lanes} lanes × {vector}{rows}", schedule.tile())
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.equations.trim_end())?;
        for (i, launch) in self.launches.iter().enumerate() {
            launch.picture(f, i + 1, self.launches.len())?;
        }
        if self.skipped > 0 {
            writeln!(f, "{} stage(s) produce nothing for these sizes", self.skipped)?;
        }
        self.instead_of.iter().try_for_each(|plan| writeln!(f, "taken instead of {plan}"))?;
        let total: u64 = self.launches.iter().map(|l| l.bytes).sum();
        let temporary = if self.temporary_bytes > 0 {
            format!(", {} of temporary tensors", bytes(self.temporary_bytes))
        } else {
            String::new()
        };
        writeln!(f, "{} launch(es), {}, about {:.1} µs{temporary}", self.launches.len(), bytes(total), self.micros())
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
        lines.extend([self.division.clone(), format!("{}, {}", self.grid, bytes(self.bytes))]);
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
        for (i, (schedule, micros, why)) in self.candidates.iter().take(SHOWN).enumerate() {
            let mark = if i == 0 { "✓" } else { " " };
            writeln!(f, "  {mark} {micros:8.1} µs  {schedule}: {why}")?;
        }
        if self.candidates.len() > SHOWN {
            writeln!(f, "                 and {} slower ones", self.candidates.len() - SHOWN)?;
        }
        self.refused.iter().try_for_each(|(schedule, why)| writeln!(f, "  ✗              {schedule}: {why}"))?;
        writeln!(f)
    }
}

/// How many columns of a terminal a text takes: combining marks take none.
fn width(text: &str) -> usize {
    text.chars().filter(|c| !('\u{300}'..='\u{36f}').contains(c)).count()
}

/// A number of bytes, for reading.
fn bytes(n: u64) -> String {
    let x = n as f64;
    match n {
        0..10_000 => format!("{n} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", x / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", x / 1e6),
        _ => format!("{:.1} GB", x / 1e9),
    }
}
