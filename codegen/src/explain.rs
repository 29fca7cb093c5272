//! Plans in words and as a picture: what is computed, by which launches, and why so.

mod cut;
mod page;
pub mod testing;

pub use cut::{Carry, Cut, SHOWN, Side, Tile};
pub use page::{Section, fragment, page};

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use oplus_dsl::adjoint::equations;
use oplus_dsl::ir::{Axis, MatrixScan, Op, Program, Term};

use crate::plan::{Choice, Launch, NotTaken, OtherCut, Plan};
use crate::schedules::Schedule;
use crate::stage::{CutRefusal, Sink, Source, Stage};
use crate::words::{Bytes, counted, width};

/// The account of a plan, which prints as text: the equations, and the launches with the reasons for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The program's name.
    pub name: String,
    /// The program as equations.
    pub equations: String,
    /// The launches, in order; of those that differ in their piece of the call alone, the first.
    pub launches: Vec<Explained>,
    /// How many launches there are, each piece counted.
    pub count: usize,
    /// Stages that are not launched because they produce nothing for these sizes.
    pub skipped: usize,
    /// Bytes of temporary tensors.
    pub temporary_bytes: u64,
    /// 64-bit words for messages between blocks.
    pub message_words: u64,
    /// The other ways to cut the program that a plan could have taken, and why it does not.
    pub other_cuts: Vec<(String, String)>,
    /// Axes longer than a block can sum that are not split, and why.
    pub other_splits: Vec<(String, String)>,
    /// The plan that this one is taken instead of, and why; for whoever knows which kernels there are to fill in.
    pub instead_of: Option<String>,
}

/// A schedule that fits a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its text.
    pub schedule: String,
    /// The estimate, microseconds.
    pub micros: f64,
    /// The estimate in words.
    pub why: String,
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The stage's name.
    pub name: String,
    /// Its work, in a few words.
    pub task: String,
    /// The tensors that it reads.
    pub reads: Vec<String>,
    /// The tensors that it writes.
    pub writes: Vec<String>,
    /// The stage as equations.
    pub equations: String,
    /// The division of the work, in words.
    pub division: String,
    /// Blocks, threads and shared memory, in words.
    pub grid: String,
    /// The kernel's symbol.
    pub symbol: String,
    /// The schedules that fit, the one taken first.
    pub candidates: Vec<Candidate>,
    /// The schedules that do not fit, and why.
    pub refused: Vec<(String, String)>,
    /// Bytes of the tensors read and written, each once.
    pub bytes: u64,
    /// Facts of the compiled kernel, each with its name; for whoever has compiled it to fill in.
    pub facts: Vec<(String, String)>,
    /// The tiles that it cuts its work into.
    pub cut: Cut,
}

impl Explanation {
    /// The explanation of a program's plan.
    pub fn of(program: &Program, plan: &Plan) -> Explanation {
        Explanation {
            name: program.name.clone(),
            equations: equations(program),
            launches: plan.distinct().into_iter().map(|(launch, choice)| Explained::of(launch, choice)).collect(),
            count: plan.steps.len(),
            skipped: plan.choices.iter().filter(|c| c.step.is_none()).count(),
            temporary_bytes: plan.bytes(),
            message_words: plan.message_words,
            other_cuts: other_cuts(plan),
            other_splits: plan.other_splits.iter().map(|own| (own.axis.clone(), own.why.to_string())).collect(),
            instead_of: None,
        }
    }

    /// The launches without the equations of the whole program.
    pub fn plan(&self) -> PlanInWords<'_> {
        PlanInWords(self)
    }

    /// The sum of the launches' estimates, microseconds.
    pub fn micros(&self) -> f64 {
        self.launches.iter().filter_map(|l| l.candidates.first()).map(|taken| taken.micros).sum()
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
            division: schedule.words(stage, &launch.sizes()),
            grid: format!(
                "{} of {threads} threads{shared}",
                counted(grid.map(u64::from).iter().product::<u64>(), "block")
            ),
            symbol: launch.symbol.clone(),
            candidates: candidates(choice),
            refused: refused(stage, choice),
            bytes: choice.candidates.first().map_or(0, |c| c.bytes),
            facts: vec![],
            cut: Cut::of(launch),
        }
    }
}

/// The other ways to cut a program, but those that it has nothing for.
fn other_cuts(plan: &Plan) -> Vec<(String, String)> {
    let is_there = |other: &&OtherCut| !matches!(other.why, NotTaken::Cut(CutRefusal::Absent { .. }));
    plan.other_cuts.iter().filter(is_there).map(|other| (other.how.to_string(), other.why.to_string())).collect()
}

/// Every schedule that fits, once, though it may fit in several ways: with the least estimate.
fn candidates(choice: &Choice) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = vec![];
    for estimate in &choice.candidates {
        let schedule = estimate.schedule.to_string();
        if candidates.iter().all(|known| known.schedule != schedule) {
            candidates.push(Candidate { schedule, micros: estimate.micros, why: estimate.why.clone() });
        }
    }
    candidates
}

/// Every schedule that fits in no way, once, and why.
fn refused(stage: &Stage, choice: &Choice) -> Vec<(String, String)> {
    let fits = |schedule: &Schedule| choice.candidates.iter().any(|c| c.schedule == *schedule);
    let own = choice.refused.iter().filter(|(schedule, _)| !fits(schedule));
    let mut refused: Vec<(String, String)> = vec![];
    let of_kinds = Schedule::refusals(stage).into_iter().map(|(name, why)| (name.to_owned(), why.to_string()));
    for (schedule, why) in own.map(|(s, why)| (s.to_string(), why.to_string())).chain(of_kinds) {
        if refused.iter().all(|(known, _)| *known != schedule) {
            refused.push((schedule, why));
        }
    }
    refused
}

/// The kind of work, along which axes and by which operator.
fn task(stage: &Stage) -> String {
    if stage.is_pairwise() {
        return pairwise(stage);
    }
    if let Some(recurrence) = stage.recurrence() {
        return matrices(stage, recurrence.scan);
    }
    let Some(scan) = stage.scan() else { return "map".to_owned() };
    let operator = &stage.program.operator(scan.operator).name;
    let axis = stage.program.axis_name(scan.axis);
    let direction = if scan.reverse { "reverse " } else { "" };
    let kind = if stage.is_reduction() { "reduction" } else { "scan" };
    let state = stage.state_axis().map(|a| format!(", states summed over {}", stage.program.axis_name(a)));
    let kind = if stage.opposite_scans().is_some() { "scans both ways" } else { kind };
    format!("{direction}{kind} along {axis} by {operator}{}", state.unwrap_or_default())
}

/// A recurrence of matrices: along which axis, by matrices of which form, and whether all states are stored.
fn matrices(stage: &Stage, scan: &MatrixScan) -> String {
    let name = |axis: Axis| stage.program.axis_name(axis);
    let both = stage.opposite_recurrences().is_some();
    let direction = if scan.reverse { "reverse " } else { "" };
    let kind = if both { "recurrences both ways" } else { "recurrence" };
    let pairs = scan.terms.iter().filter(|term| matches!(term, Term::Pair { .. })).count();
    let whole = scan.terms.len() - pairs;
    let parts = [(pairs, counted(pairs, "pair")), (whole, format!("{whole} whole ones"))];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words);
    let form: Vec<String> = std::iter::once("a diagonal".to_owned()).chain(parts).collect();
    let is_stored = |axes: &Vec<Axis>| axes.contains(&scan.axis) && axes.contains(&scan.along);
    let stored = !both && stage.program.outputs.iter().any(|output| is_stored(&output.axes));
    let stored = if stored { ", all states stored" } else { "" };
    format!(
        "{direction}{kind} along {} of matrices on {}: {}{stored}",
        name(scan.axis),
        name(scan.along),
        form.join(" and ")
    )
}

/// Sums over pairs, of which axes: those that are summed over where the pairs have no kind.
fn pairwise(stage: &Stage) -> String {
    let name = |axis: Axis| stage.program.axis_name(axis);
    let Ok(form) = stage.kind().pairwise() else {
        let summed = |op: &Op| if let Op::Reduce { axis, .. } = op { Some(name(*axis)) } else { None };
        let axes: BTreeSet<&str> = stage.program.nodes.iter().filter_map(|node| summed(&node.op)).collect();
        return format!("sums over {}", axes.into_iter().collect::<Vec<_>>().join(", "));
    };
    let grouped = form.grouped.map(|axis| format!(", added up over {}", name(axis)));
    let split = stage.partial_axis.map(|_| ", as partial sums".to_owned());
    format!(
        "sums over pairs of {} and {}{}{}",
        name(form.row),
        name(form.column),
        grouped.unwrap_or_default(),
        split.unwrap_or_default()
    )
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

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n\n{}", self.equations.trim_end(), self.plan())
    }
}

/// The launches of an explanation with the reasons for each; prints as text.
pub struct PlanInWords<'a>(&'a Explanation);

impl Display for PlanInWords<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Explanation { launches, count, skipped, temporary_bytes, instead_of, .. } = self.0;
        for (i, launch) in launches.iter().enumerate() {
            launch.picture(f, i + 1, launches.len())?;
        }
        if *skipped > 0 {
            let verb = if *skipped == 1 { "produces" } else { "produce" };
            writeln!(f, "{} {verb} nothing for these sizes", counted(skipped, "stage"))?;
        }
        self.0.other_cuts.iter().try_for_each(|(how, why)| writeln!(f, "not cut {how}: {why}"))?;
        self.0.other_splits.iter().try_for_each(|(axis, why)| writeln!(f, "not with {axis} in parts: {why}"))?;
        instead_of.iter().try_for_each(|plan| writeln!(f, "taken instead of {plan}"))?;
        let total: u64 = launches.iter().map(|l| l.bytes).sum();
        let (launches, total, micros) = (counted(*count, "launch"), Bytes(total), self.0.micros());
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
        for (i, Candidate { schedule, micros, why }) in self.candidates.iter().enumerate() {
            let mark = if i == 0 { "✓" } else { " " };
            writeln!(f, "  {mark} {micros:8.1} µs  {schedule}: {why}")?;
        }
        self.refused.iter().try_for_each(|(schedule, why)| writeln!(f, "  ✗              {schedule}: {why}"))?;
        writeln!(f)
    }
}
