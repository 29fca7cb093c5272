//! The ways to cut a program into stages, and why a program is not cut in one of them.

use std::fmt::{self, Display, Formatter};

use oplus_dsl::ir::Program;
use thiserror::Error;

use super::cut::{contracted, cut_plain, in_parts, prepare};
use super::paired::Outward;
use super::two_way::{of_all, of_states};
use super::{Cut, CutError, Kind, Refusal, Stage, collapse};

/// A way to cut a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutKind {
    /// Without sums that are kept with what they sum.
    Plain,
    /// With sums over states kept with their scans.
    Contracted,
    /// With a two-way stage that takes the sums of states.
    TwoWay,
    /// With sums over pairs kept with what they sum.
    Paired,
    /// With a stage for each of these sums.
    Apart,
    /// With sums over pairs that are added up over an axis which repeats them.
    Gathered,
    /// With the columns of pairs in parts.
    Split,
    /// With a two-way stage that takes all sums.
    Chunked,
    /// With sums over columns in parts.
    Parted,
}

/// Why a program is not cut in some way.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CutRefusal {
    /// The program has nothing that the way to cut is for.
    #[error("{}", of.lacks())]
    Absent {
        /// The way to cut.
        of: CutKind,
    },
    /// A stage would be of no kind that a kernel takes.
    #[error("no kernel would take `{stage}`: {}", joined(refusals))]
    Stage {
        /// The stage's name.
        stage: String,
        /// What it lacks for each kind.
        refusals: Vec<Refusal>,
    },
}

fn joined(refusals: &[Refusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A program, cut in every way in which it can run, or why it is not.
#[derive(Clone, Debug, PartialEq)]
pub struct Cuts(pub Vec<(CutKind, Result<Cut, CutRefusal>)>);

impl Cuts {
    /// The cuts that there are.
    pub fn all(self) -> impl Iterator<Item = Cut> {
        self.0.into_iter().filter_map(|(_, cut)| cut.ok())
    }

    /// One of them.
    pub fn get(&self, how: CutKind) -> Option<&Cut> {
        self.0.iter().find(|(own, _)| *own == how).and_then(|(_, cut)| cut.as_ref().ok())
    }
}

/// Cuts a program in every way in which it can run.
///
/// # Errors
/// Why it cannot be cut at all.
pub fn cuts(program: &Program) -> Result<Cuts, CutError> {
    let program = prepare(program)?;
    let outward = Outward::of(&program);
    let found = |how: CutKind| -> Result<Vec<Cut>, CutError> {
        Ok(match how {
            CutKind::Plain => vec![cut_plain(&program)?],
            CutKind::Contracted => contracted(&program)?.into_iter().collect(),
            CutKind::TwoWay => of_states(&program)?.into_iter().collect(),
            CutKind::Paired => outward.paired()?.into_iter().collect(),
            CutKind::Apart => outward.apart()?.into_iter().collect(),
            CutKind::Gathered => outward.gathered()?.into_iter().collect(),
            CutKind::Split => outward.split()?.into_iter().collect(),
            CutKind::Chunked => of_all(&program)?,
            CutKind::Parted => in_parts(&program)?.into_iter().collect(),
        })
    };
    let ways = CutKind::ALL.into_iter().map(|how| Ok((how, how.first_taken(found(how)?))));
    Ok(Cuts(ways.collect::<Result<_, CutError>>()?))
}

impl CutKind {
    /// All of them, in the order in which plans are compared: of equal ones the first is taken.
    pub const ALL: [CutKind; 9] = [
        CutKind::Plain,
        CutKind::Contracted,
        CutKind::Parted,
        CutKind::TwoWay,
        CutKind::Chunked,
        CutKind::Paired,
        CutKind::Apart,
        CutKind::Gathered,
        CutKind::Split,
    ];

    /// Whether the stages may store all states of a scan in between.
    pub fn may_store_states(self) -> bool {
        matches!(self, CutKind::Plain | CutKind::Contracted | CutKind::Parted)
    }

    /// The first cut whose stages kernels take, or what a stage of the first one lacks.
    fn first_taken(self, cuts: Vec<Cut>) -> Result<Cut, CutRefusal> {
        let mut first: Option<CutRefusal> = None;
        for cut in cuts {
            match cut.stages.iter().find_map(|stage| self.refusal(stage)) {
                None => return Ok(cut),
                Some(refusal) => first = first.or(Some(refusal)),
            }
        }
        Err(first.unwrap_or(CutRefusal::Absent { of: self }))
    }

    /// Why no kernel takes a stage of such a cut, if none does.
    fn refusal(self, stage: &Stage) -> Option<CutRefusal> {
        let kind = stage.kind();
        let refusals = match self {
            CutKind::Plain => vec![],
            CutKind::Contracted => of_contracted(stage),
            CutKind::TwoWay if stage.two_way().is_some() => kind.walk_back().err().into_iter().collect(),
            CutKind::Chunked if stage.two_way().is_some() => kind.matrices_back().err().into_iter().collect(),
            CutKind::TwoWay => vec![],
            CutKind::Chunked => of_contracted(stage),
            CutKind::Paired | CutKind::Apart | CutKind::Gathered | CutKind::Split if stage.is_paired() => {
                kind.pairs().err().into_iter().collect()
            }
            CutKind::Paired | CutKind::Apart | CutKind::Gathered | CutKind::Split => vec![],
            CutKind::Parted if stage.part_axis.is_some() => {
                let parted = |kind: &Kind| kind.parted().err();
                let refusal = collapse(stage).map_or_else(|| parted(kind), |merged| parted(merged.stage.kind()));
                refusal.into_iter().collect()
            }
            CutKind::Parted => vec![],
        };
        (!refusals.is_empty()).then(|| CutRefusal::Stage { stage: stage.program.name.clone(), refusals })
    }

    /// What a program lacks that is not cut in this way.
    fn lacks(self) -> &'static str {
        match self {
            CutKind::Plain => "there is nothing to compute",
            CutKind::Contracted => "no states of a scan are summed away",
            CutKind::TwoWay => "there are no two scans in opposite directions whose states are summed away",
            CutKind::Chunked => "there are no two scans in opposite directions all of whose states are summed away",
            CutKind::Paired => "nothing is summed over pairs of rows and columns",
            CutKind::Apart => "no stage has several sums over pairs",
            CutKind::Gathered => "no axis repeats the pairs that are summed over",
            CutKind::Split => "there is not just one stage of sums over pairs",
            CutKind::Parted => "no states that are written are also summed over columns",
        }
    }
}

/// What a stage lacks for both ways to sum states away, if it needs one and has none.
fn of_contracted(stage: &Stage) -> Vec<Refusal> {
    match (stage.state_axis(), stage.kind().walk(), stage.kind().matrices()) {
        (Some(_), Err(walk), Err(matrices)) if walk == matrices => vec![walk],
        (Some(_), Err(walk), Err(matrices)) => vec![walk, matrices],
        _ => vec![],
    }
}

impl Display for CutKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CutKind::Plain => "plain",
            CutKind::Contracted => "with sums of states in their scans",
            CutKind::TwoWay => "with scans both ways",
            CutKind::Paired => "with sums over pairs",
            CutKind::Apart => "with sums over pairs apart",
            CutKind::Gathered => "with sums over repeated pairs",
            CutKind::Split => "with sums over pairs in parts",
            CutKind::Chunked => "with scans both ways and all their sums",
            CutKind::Parted => "with sums over columns in parts",
        })
    }
}
