//! The kinds of stages, with all that schedules need to know of them. A kind is found once, when the stage is made.

mod backward;
mod contracted;
mod delta;
mod delta_backward;
mod gated_linear;
mod gauge;
mod hoist;
mod matrix;
mod matrix_backward;
mod matrix_final;
mod pairwise;
mod partial_sums;
pub(crate) mod product;
mod readouts;
mod recurrence;
mod scale;

pub use backward::{BackwardScan, Given, Sum};
pub use contracted::Walk;
pub(crate) use contracted::is_point;
pub use delta::{Channels, DeltaReadout, DeltaRule, Factored};
pub use delta_backward::{DeltaCotangent, DeltaRuleBackward, DeltaSum};
pub use gauge::rate as gauge_rate;
pub use matrix::{Decay, MatrixRecurrence, Readout};
pub use matrix_backward::{Cotangent, MatrixRecurrenceBackward};
pub use pairwise::{Across, Contraction, Gauge, Limit, Pairwise, Payload};
pub use partial_sums::{PartialSum, PartialSums};
pub use product::Product;
pub use recurrence::Recurrence;

use super::{Refusal, Stage};

/// The kind of a stage.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a stage has one, behind an `Arc`")]
pub enum Kind {
    /// There is no scan.
    Map,
    /// States are written, or maps of them.
    Scan,
    /// Only final states are kept.
    Reduce,
    /// Only final states are kept, and some outputs lack outer axes that others have.
    UnevenReduce,
    /// Only the final state of a recurrence of matrices is kept.
    MatrixReduce(Box<MatrixRecurrence>),
    /// A scan with partial sums over columns, or what it lacks for one kernel to take both.
    PartialSums(Result<PartialSums, Refusal>),
    /// A scan whose states are summed away.
    Contracted(Contracted),
    /// Two scans in opposite directions whose states are summed away.
    Backward(Box<Backward>),
    /// Sums over pairs of a row and a column, or what they lack.
    Pairwise(Result<Pairwise, Refusal>),
    /// A recurrence whose state is multiplied by a matrix at every step.
    Recurrence(Box<Recurrence>),
    /// The gradient of such a recurrence, or what it lacks to be computed in chunks.
    RecurrenceBackward(Result<Box<DeltaRuleBackward>, Refusal>),
}

/// The ways in which a scan whose states are summed away can be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Contracted {
    /// Step by step, with the states in registers.
    pub walk: Result<Walk, Refusal>,
    /// By products of matrices.
    pub matrices: Result<MatrixRecurrence, Refusal>,
    /// By products of matrices of 16 times, as a delta rule whose steps read nothing of the state.
    pub delta: Result<DeltaRule, Refusal>,
}

/// The ways in which two scans in opposite directions can be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Backward {
    /// Step by step, with the states computed again.
    pub walk: Result<BackwardScan, Refusal>,
    /// By products of matrices.
    pub matrices: Result<MatrixRecurrenceBackward, Refusal>,
    /// By products of matrices of 16 times, as the gradient of a delta rule whose steps read nothing of the state.
    pub delta: Result<DeltaRuleBackward, Refusal>,
}

impl Kind {
    /// The kind of a stage, from its program, views and axis of partial sums.
    pub(super) fn of(stage: &Stage) -> Kind {
        if stage.opposite_recurrences().is_some() {
            return Kind::RecurrenceBackward(DeltaRuleBackward::of(stage).map(Box::new));
        }
        if let Some(recurrence) = Recurrence::of(stage) {
            return Kind::Recurrence(Box::new(recurrence));
        }
        if stage.sequences().is_some() && stage.opposite_scans().is_some() {
            let matrices = MatrixRecurrenceBackward::of(stage);
            return Kind::backward(stage, Err(Refusal::Sequences), matrices);
        }
        if stage.sequences().is_some() {
            let matrices = match stage.state_axis() {
                Some(_) => MatrixRecurrence::of(stage),
                None => MatrixRecurrence::of_final(stage).ok_or(Refusal::NoReadout),
            };
            return Kind::contracted(stage, Err(Refusal::Sequences), matrices);
        }
        if stage.is_pairwise() {
            return Kind::Pairwise(Pairwise::of(stage));
        }
        if stage.opposite_scans().is_some() {
            return Kind::backward(stage, BackwardScan::of(stage), MatrixRecurrenceBackward::of(stage));
        }
        if stage.partial_axis.is_some() {
            return Kind::PartialSums(PartialSums::of(stage));
        }
        if stage.state_axis().is_some() && stage.axis().is_some() {
            return Kind::contracted(stage, Walk::of(stage), MatrixRecurrence::of(stage));
        }
        match stage.axis() {
            None => Kind::Map,
            Some(axis) if stage.program.outputs.iter().any(|o| o.axes.contains(&axis)) => Kind::Scan,
            Some(_) => match MatrixRecurrence::of_final(stage) {
                Some(form) => Kind::MatrixReduce(Box::new(form)),
                None if stage.has_uneven_outputs() => Kind::UnevenReduce,
                None => Kind::Reduce,
            },
        }
    }

    /// A scan whose states are summed away, in all forms.
    fn contracted(stage: &Stage, walk: Result<Walk, Refusal>, matrices: Result<MatrixRecurrence, Refusal>) -> Kind {
        let delta = match &matrices {
            Ok(form) => DeltaRule::of_matrices(stage, form),
            Err(refusal) => Err(refusal.clone()),
        };
        Kind::Contracted(Contracted { walk, matrices, delta })
    }

    /// Two scans in opposite directions, in all forms.
    fn backward(
        stage: &Stage,
        walk: Result<BackwardScan, Refusal>,
        matrices: Result<MatrixRecurrenceBackward, Refusal>,
    ) -> Kind {
        let delta = match &matrices {
            Ok(form) => DeltaRuleBackward::of_matrices(stage, form),
            Err(refusal) => Err(refusal.clone()),
        };
        Kind::Backward(Box::new(Backward { walk, matrices, delta }))
    }

    /// Whether the stage scans, and writes states or maps of them.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn scan(&self) -> Result<(), Refusal> {
        match self {
            Kind::Scan | Kind::Reduce | Kind::MatrixReduce(_) => Ok(()),
            Kind::UnevenReduce => Err(Refusal::Uneven),
            _ => Err(Refusal::NoScan),
        }
    }

    /// The walk of a scan whose states are summed away.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn walk(&self) -> Result<&Walk, Refusal> {
        match self {
            Kind::Contracted(contracted) => contracted.walk.as_ref().map_err(Refusal::clone),
            _ => Err(Refusal::NoContraction),
        }
    }

    /// The recurrence of matrices that a scan is.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn matrices(&self) -> Result<&MatrixRecurrence, Refusal> {
        match self {
            Kind::Contracted(contracted) => contracted.matrices.as_ref().map_err(Refusal::clone),
            Kind::MatrixReduce(form) => Ok(form),
            _ => Err(Refusal::NoReadout),
        }
    }

    /// The walk back of two scans in opposite directions.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn walk_back(&self) -> Result<&BackwardScan, Refusal> {
        match self {
            Kind::Backward(backward) => backward.walk.as_ref().map_err(Refusal::clone),
            _ => Err(Refusal::OneDirection),
        }
    }

    /// The gradient of a recurrence of matrices that two scans in opposite directions are.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn matrices_back(&self) -> Result<&MatrixRecurrenceBackward, Refusal> {
        match self {
            Kind::Backward(backward) => backward.matrices.as_ref().map_err(Refusal::clone),
            _ => Err(Refusal::NoReadout),
        }
    }

    /// The recurrence whose state is multiplied by a matrix at every step.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn recurrence(&self) -> Result<&Recurrence, Refusal> {
        match self {
            Kind::Recurrence(recurrence) => Ok(recurrence),
            Kind::RecurrenceBackward(_) => Err(Refusal::BothWays),
            _ => Err(Refusal::NoMatrices),
        }
    }

    /// The delta rule that a recurrence is, or a recurrence of matrices as one whose steps read nothing of the state.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn delta(&self) -> Result<&DeltaRule, Refusal> {
        if let Kind::Contracted(contracted) = self {
            return contracted.delta.as_ref().map_err(Refusal::clone);
        }
        self.recurrence()?.delta.as_ref().map_err(Refusal::clone)
    }

    /// The gradient of a delta rule that two recurrences are, or two scans as that of a rule whose steps read nothing of the state.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn delta_back(&self) -> Result<&DeltaRuleBackward, Refusal> {
        match self {
            Kind::RecurrenceBackward(form) => form.as_ref().map(|form| &**form).map_err(Refusal::clone),
            Kind::Backward(backward) => backward.delta.as_ref().map_err(Refusal::clone),
            _ => Err(Refusal::OneDirection),
        }
    }

    /// The sums over pairs that a stage is.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn pairwise(&self) -> Result<&Pairwise, Refusal> {
        match self {
            Kind::Pairwise(pairs) => pairs.as_ref().map_err(Refusal::clone),
            _ => Err(Refusal::NoPairs),
        }
    }

    /// The sums over pairs that a stage is, one of them over rows.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn across(&self) -> Result<(&Pairwise, &Across), Refusal> {
        let form = self.pairwise()?;
        form.across.as_ref().map(|across| (form, across)).ok_or(Refusal::NotAcross)
    }

    /// The partial sums over columns of a stage.
    ///
    /// # Errors
    /// [`Refusal`] says what the stage lacks.
    pub fn partial_sums(&self) -> Result<&PartialSums, Refusal> {
        match self {
            Kind::PartialSums(sums) => sums.as_ref().map_err(Refusal::clone),
            _ => Err(Refusal::NoPartialSums),
        }
    }
}
