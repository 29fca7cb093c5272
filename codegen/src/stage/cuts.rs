//! The ways to cut a program into stages, and why a program is not cut in one of them.

use std::fmt::{self, Display, Formatter};

use oplus_dsl::ir::{Op, Program};
use thiserror::Error;

use super::backward_scan::{Sums, first_taken};
use super::cut::{contracted, cut_decayed, cut_narrow, cut_plain, matrices_back, partial_sums, prepare};
use super::finals::final_states;
use super::pairwise::Outward;
use super::sequences::cut_sequences;
use super::{Cut, CutError, Kind, Refusal, Stage, collapse};

/// A way to cut a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutKind {
    /// Every sum has a stage of its own.
    Plain,
    /// Into plain stages that store values over as few axes as possible.
    Narrow,
    /// Into plain stages, with recurrences of matrices that compute the exponentials of their decays.
    Decayed,
    /// With sums over states kept with their scans.
    Contracted,
    /// With a backward-scan stage that takes the sums of states.
    BackwardScan,
    /// With sums over pairs in the stage that computes the pairs.
    Pairwise,
    /// With such a stage for each sum over pairs.
    PairwiseSeparate,
    /// With sums over pairs, after sums are divided and reordered, and computed rows and columns are stored. Sums that no kernel takes
    /// have plain stages.
    PairwiseArranged,
    /// With sums over pairs that are added up over an axis which repeats them.
    GroupedQuery,
    /// With sums over the rows of pairs and over their columns in one stage.
    PairwiseAcross,
    /// With partial sums over the columns of pairs.
    SplitK,
    /// With a backward-scan stage that takes all sums.
    MatrixBackward,
    /// With partial sums over columns.
    PartialSums,
    /// With final states of which a lane holds several.
    FinalStates,
    /// With blocks for packed sequences that begin or end at states of their own.
    Sequences,
}

/// Why a program is not cut in some way.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CutRefusal {
    /// The program has nothing that this way to cut is for.
    #[error("{}", of.lacks())]
    Absent {
        /// The way to cut.
        of: CutKind,
    },
    /// Packed sequences begin or end at states of their own.
    #[error(
        "packed sequences have states of their own, which are brought to their places by stages that store all states"
    )]
    Gathers,
    /// The program has recurrences of matrices.
    #[error(
        "a state is multiplied by a matrix at every step: stages of such recurrences keep the sums of their states themselves"
    )]
    Matrices,
    /// Packed sequences have states of their own, but no blocks of their own.
    #[error(transparent)]
    Sequences(#[from] SequencesRefusal),
    /// A stage would be of no kind that a kernel takes.
    #[error("no kernel would take `{stage}`: {}", joined(refusals))]
    Stage {
        /// The stage's name.
        stage: String,
        /// The reasons why it is not of each kind.
        refusals: Vec<Refusal>,
    },
}

/// Why packed sequences with states of their own have no blocks of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SequencesRefusal {
    /// Sequences lie along several axes, or by several lists of offsets.
    #[error("sequences lie along several axes, or by several lists of offsets")]
    Lists,
    /// A scan along the times of sequences is not one of each sequence from its first state on.
    #[error("a scan along their times is not one of each sequence by itself, from its first state on")]
    Scan,
    /// Something else than a scan reads values at other times of a sequence.
    #[error("values beside their states are not computed at each time by itself")]
    Values,
    /// In the gradient of one sequence, states are not summed away by two recurrences in opposite directions.
    #[error("of one sequence there are no two scans in opposite directions all of whose states are summed away")]
    Opposite,
    /// Values that a gradient needs of all sequences together need another scan.
    #[error("what is summed over all sequences needs a scan of its own")]
    Rest,
    /// A stage of one sequence cannot be one of all.
    #[error("a stage of one sequence reads tensors that have no place for all of them")]
    Stage,
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

    /// The cut of a kind, if there is one.
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
    let gathers = program.nodes.iter().any(|node| matches!(node.op, Op::Gather { .. }));
    let taken = |how: CutKind| -> Result<Option<Result<Cut, CutRefusal>>, CutError> {
        let cut = match how {
            CutKind::Plain => Some(cut_plain(&program)?),
            CutKind::Sequences => {
                let cut = cut_sequences(&program)?;
                return Ok(cut.map(|cut| cut.and_then(|cut| how.checked(cut))));
            }
            CutKind::Decayed => cut_decayed(&program)?,
            CutKind::MatrixBackward if program.has_matrix_scans() => matrices_back(&program)?,
            _ if program.has_matrix_scans() => return Ok(Some(Err(CutRefusal::Matrices))),
            CutKind::Narrow => cut_narrow(&program)?,
            CutKind::Contracted => contracted(&program)?,
            _ if gathers => return Ok(Some(Err(CutRefusal::Gathers))),
            CutKind::BackwardScan => return first_taken(&program, Sums::OfStates, |stage| how.refusal(stage)),
            CutKind::MatrixBackward => return first_taken(&program, Sums::All, |stage| how.refusal(stage)),
            CutKind::Pairwise => outward.pairwise()?,
            CutKind::PairwiseSeparate => outward.separate()?,
            CutKind::PairwiseArranged => outward.arranged()?,
            CutKind::GroupedQuery => outward.grouped_query()?,
            CutKind::PairwiseAcross => outward.across()?,
            CutKind::SplitK => outward.split_k()?,
            CutKind::PartialSums => partial_sums(&program)?,
            CutKind::FinalStates => final_states(&program)?,
        };
        Ok(cut.map(|cut| how.checked(cut)))
    };
    let absent = |how| Err(CutRefusal::Absent { of: how });
    let ways = CutKind::ALL.into_iter().map(|how| Ok((how, taken(how)?.unwrap_or_else(|| absent(how)))));
    Ok(Cuts(ways.collect::<Result<_, CutError>>()?))
}

impl CutKind {
    /// All kinds, in the order in which plans are compared: of equally fast plans the first is taken.
    pub const ALL: [CutKind; 15] = [
        CutKind::Plain,
        CutKind::Narrow,
        CutKind::Decayed,
        CutKind::Contracted,
        CutKind::PartialSums,
        CutKind::BackwardScan,
        CutKind::MatrixBackward,
        CutKind::Pairwise,
        CutKind::PairwiseSeparate,
        CutKind::PairwiseArranged,
        CutKind::GroupedQuery,
        CutKind::PairwiseAcross,
        CutKind::SplitK,
        CutKind::FinalStates,
        CutKind::Sequences,
    ];

    /// Whether the stages may store all states of a scan in between.
    pub fn may_store_states(self) -> bool {
        matches!(self, CutKind::Plain | CutKind::Narrow | CutKind::Decayed | CutKind::Contracted | CutKind::PartialSums)
    }

    /// Whether kernels of its stages are committed. Others are compiled or baked.
    pub fn is_committed(self) -> bool {
        !matches!(self, CutKind::Narrow | CutKind::Decayed | CutKind::PairwiseArranged | CutKind::Sequences)
    }

    /// A cut whose stages kernels take, or why none takes one of them.
    fn checked(self, cut: Cut) -> Result<Cut, CutRefusal> {
        match cut.stages.iter().find_map(|stage| self.refusal(stage)) {
            None => Ok(cut),
            Some(refusal) => Err(refusal),
        }
    }

    /// Why no kernel takes a stage of such a cut, if none does.
    pub(super) fn refusal(self, stage: &Stage) -> Option<CutRefusal> {
        let kind = stage.kind();
        let refusals = match self {
            CutKind::Plain | CutKind::Narrow => vec![],
            CutKind::Decayed if stage.recurrence().is_some() => kind.delta().err().into_iter().collect(),
            CutKind::Decayed => vec![],
            CutKind::Contracted | CutKind::FinalStates => of_contracted(stage),
            CutKind::BackwardScan if stage.opposite_scans().is_some() => kind.walk_back().err().into_iter().collect(),
            CutKind::MatrixBackward if stage.opposite_scans().is_some() => {
                kind.matrices_back().err().into_iter().collect()
            }
            CutKind::MatrixBackward if stage.opposite_recurrences().is_some() => {
                kind.delta_back().err().into_iter().collect()
            }
            CutKind::BackwardScan => vec![],
            CutKind::MatrixBackward if stage.recurrence().is_some() => vec![],
            CutKind::MatrixBackward => of_contracted(stage),
            CutKind::Pairwise
            | CutKind::PairwiseSeparate
            | CutKind::PairwiseArranged
            | CutKind::GroupedQuery
            | CutKind::PairwiseAcross
            | CutKind::SplitK => {
                let refusal = || kind.pairwise().err();
                stage.is_pairwise().then(refusal).flatten().into_iter().collect()
            }
            CutKind::PartialSums if stage.partial_axis.is_some() => {
                let partial_sums = |kind: &Kind| kind.partial_sums().err();
                let refusal =
                    collapse(stage).map_or_else(|| partial_sums(kind), |merged| partial_sums(merged.stage.kind()));
                refusal.into_iter().collect()
            }
            CutKind::PartialSums => vec![],
            CutKind::Sequences if stage.sequences().is_none() => vec![],
            CutKind::Sequences if stage.opposite_recurrences().is_some() => {
                kind.delta_back().err().into_iter().collect()
            }
            CutKind::Sequences if stage.opposite_scans().is_some() => kind.matrices_back().err().into_iter().collect(),
            CutKind::Sequences if stage.recurrence().is_some() => kind.delta().err().into_iter().collect(),
            CutKind::Sequences => kind.matrices().err().into_iter().collect(),
        };
        (!refusals.is_empty()).then(|| CutRefusal::Stage { stage: stage.program.name.clone(), refusals })
    }

    /// The reason why a program is not cut in this way.
    fn lacks(self) -> &'static str {
        match self {
            CutKind::Plain => "there is nothing to compute",
            CutKind::Narrow => "what is stored in between has no fewer axes otherwise",
            CutKind::Decayed => "no recurrence of matrices has decays that differ along the axis that is summed",
            CutKind::Contracted => "no states of a scan are summed away",
            CutKind::BackwardScan => "there are no two scans in opposite directions whose states are summed away",
            CutKind::MatrixBackward => {
                "there are no two scans in opposite directions all of whose states are summed away"
            }
            CutKind::Pairwise => "nothing is summed over pairs of rows and columns",
            CutKind::PairwiseSeparate => "no stage has several sums over pairs",
            CutKind::PairwiseArranged => "sums over pairs need no other form, or there are none",
            CutKind::GroupedQuery => "no axis repeats the pairs that are summed over",
            CutKind::PairwiseAcross => "the same pairs are not summed over their rows and over their columns",
            CutKind::SplitK => "there is not just one stage of sums over pairs",
            CutKind::PartialSums => "no states that are written are also summed over columns",
            CutKind::Sequences => {
                "no states of matrices are those of packed sequences alone, each with a first or a last one of its own"
            }
            CutKind::FinalStates => "not all that is kept are final states with an axis that some elements lack",
        }
    }
}

/// The reasons against both ways to sum states away, if a stage needs one and has none.
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
            CutKind::Plain => "into plain stages",
            CutKind::Narrow => "into plain stages with fewer axes in between",
            CutKind::Decayed => "with the decays of recurrences in their stages",
            CutKind::Contracted => "with sums of states in their scans",
            CutKind::BackwardScan => "with scans both ways",
            CutKind::Pairwise => "with sums over pairs",
            CutKind::PairwiseSeparate => "with sums over pairs apart",
            CutKind::PairwiseArranged => "with sums over pairs taken apart",
            CutKind::GroupedQuery => "with sums over repeated pairs",
            CutKind::PairwiseAcross => "with sums over rows and columns of pairs together",
            CutKind::SplitK => "with partial sums over pairs",
            CutKind::MatrixBackward => "with scans both ways and all their sums",
            CutKind::PartialSums => "with partial sums over columns",
            CutKind::Sequences => "with blocks for packed sequences",
            CutKind::FinalStates => "with several final states in a lane",
        })
    }
}
