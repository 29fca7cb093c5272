//! Why a stage is not of a kind: what a schedule for that kind would need, and the stage lacks.

use thiserror::Error;

/// The reasons why a stage is not of a kind.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    // ---- maps and scans
    /// The stage has a scan.
    #[error("it has a scan")]
    Scanned,
    /// No states of a scan are written, nor maps of them.
    #[error("it has no scan whose states are written")]
    NoScan,

    /// Some outputs lack outer axes that others have.
    #[error("some of its outputs lack outer axes that others have")]
    Uneven,

    /// No state is multiplied by a matrix.
    #[error("no state is multiplied by a matrix")]
    NoMatrices,

    /// The stage has recurrences of matrices in both directions.
    #[error("it has recurrences of matrices in both directions")]
    BothWays,
    /// The matrix of a step is not a diagonal and one pair of vectors.
    #[error("the matrix of a step is not a diagonal and one pair of vectors")]
    Terms,
    /// A vector that a step reads or adds is computed otherwise than by a number at each time.
    #[error("a vector of the step is no parameter along time times numbers")]
    Vectors,
    /// The stage of a recurrence computes decays that every row of the state would compute again.
    #[error("every row of the state would compute the exponentials of the decays again")]
    RepeatedDecays,
    /// The two parts that a step adds, of what it reads of the state and of the input, are not along one vector.
    #[error("what a step reads of the state and what it adds are no numbers times one parameter along time")]
    TwoKeys,
    /// The vector that what a step reads of the state is added times has a factor.
    #[error(
        "what a step reads of the state is added times a vector with a factor: the factor can stand beside the vector that it is read by"
    )]
    NumberOfRow,
    /// A step of the rule does not add its key times a number times the difference of a value and what it reads of the state.
    #[error("a step does not move what it reads of the state towards a value by one number")]
    NotMoved,
    /// The recurrence of the cotangents is not that of the states, transposed.
    #[error("the two recurrences are not those of states and of their cotangents")]
    NotTransposed,
    /// All states are asked for.
    #[error("all states are written")]
    AllStates,
    /// A block has one of several sequences that lie one behind the other.
    #[error("a block has one of several sequences, which only kernels of chunks find in a list of offsets")]
    Sequences,

    // ---- recurrences of matrices, and their gradients
    /// Nothing is scanned, or nothing of the states is summed away.
    #[error("no states are summed away")]
    NoReadout,
    /// The scan goes from the end to the beginning.
    #[error("the scan begins at the end")]
    Reverse,
    /// States before their elements are read.
    #[error("states before their elements are read")]
    Exclusive,
    /// The operator is not l ↦ decay·l + r in the field that is read.
    #[error("{operator} does not scale the state and add to it")]
    NotAffine {
        /// The operator.
        operator: String,
    },
    /// The decay is not an exponential.
    #[error("the decay is not the exponential of a value")]
    NoExponential,
    /// The states have one axis only.
    #[error("the states are vectors along {axis}: nothing is left to multiply matrices by")]
    Vector {
        /// The axis that is summed away.
        axis: String,
    },
    /// Every state has its own decay.
    #[error("every state has a decay of its own, over {axes}: products of rows and columns cannot carry it")]
    Diagonal {
        /// The axes of the state that the decay has.
        axes: String,
    },
    /// The decay differs along the wrong axis of the state.
    #[error("the decay differs along {axis}, where chunks have one for all of it")]
    Channels {
        /// The axis.
        axis: String,
    },
    /// The addend is not an outer product of parameters.
    #[error("what is added is no outer product of a parameter over {depth} and one over {width}")]
    NotOuter {
        /// The axis that is summed away.
        depth: String,
        /// The other one.
        width: String,
    },
    /// The summed value is not a parameter times a state.
    #[error("what is summed over {axis} is no product of a parameter and a state")]
    NotQuery {
        /// The axis.
        axis: String,
    },
    /// The factors of matrix products are not of one type.
    #[error("matrix products need factors of one type: bf16, f16 or f32")]
    Type,

    // ---- contracted scans, and their gradients
    /// No sum over an axis of the states is kept with the scan.
    #[error("it has no sum over an axis of its states")]
    NoContraction,
    /// There are no two scans in opposite directions.
    #[error("it has no two scans in opposite directions")]
    OneDirection,
    /// A parameter's elements are wider than registers of 32 bits.
    #[error("`{param}` has elements of {elem}")]
    Elem {
        /// The parameter.
        param: String,
        /// Its element type.
        elem: String,
    },
    /// A field of the states is wider than registers of 32 bits, or is no number.
    #[error("the field `{field}` is {ty}")]
    Field {
        /// The field.
        field: String,
        /// Its type.
        ty: String,
    },
    /// A parameter is read elsewhere than where it lies.
    #[error("a parameter is displaced")]
    Displaced,
    /// An output is not one that the walk gives.
    #[error("`{output}` is neither a map of sums nor of final states")]
    Output {
        /// The output.
        output: String,
    },
    /// Values at other positions are read.
    #[error("it reads elsewhere than at the point")]
    Elsewhere,
    /// The states that are walked back have several fields.
    #[error("its states have several fields")]
    SeveralFields,
    /// The state after a step is no map of the state before it that the gradient can be taken of.
    #[error("its states cannot be written out")]
    NotWritten,
    /// The value that is summed at every state and step is a sum itself.
    #[error("it sums sums over rows over the states")]
    SumOfSums,
    /// An output at every row and step is a map of a sum over rows or times, which no lane has.
    #[error("an output is a map of a sum over rows or times")]
    MapOfSum,
    /// There are more sums over rows than a block has room for.
    #[error("it has {sums} sums over rows, more than {most}")]
    RowSums {
        /// The sums.
        sums: usize,
        /// The most that there may be.
        most: usize,
    },

    // ---- partial sums over columns
    /// There are no partial sums.
    #[error("there are no partial sums over columns")]
    NoPartialSums,
    /// The partial sums are not over the axis along which the states are written.
    #[error("its partial sums are not over the last axis of its states")]
    PartialSumAxis,

    // ---- sums over pairs
    /// Nothing is summed over pairs of a row and a column.
    #[error("nothing is summed over pairs")]
    NoPairs,
    /// Sums over pairs are added up over different axes.
    #[error("sums are added up over different axes")]
    SeveralTotals,
    /// No contraction of rows and columns lies beneath the sums.
    #[error("no product of rows and columns is summed")]
    NoProduct,
    /// Rows, or the columns that they see, depend on the axis over which sums are added up.
    #[error("sums over pairs cannot be added up over {axis}")]
    Total {
        /// The axis.
        axis: String,
    },
    /// Not all sums are over the same columns.
    #[error("sums are over several axes")]
    SeveralColumns,
    /// An operator has a gauge, but is not the softmax merge.
    #[error("{operator} is no softmax merge")]
    NotMerge {
        /// The operator.
        operator: String,
    },
    /// Beside a softmax merge there are other reductions.
    #[error("there are several reductions, one of them a softmax merge")]
    BesideMerge,
    /// An operator over the columns is of no kind that tiles can be combined by.
    #[error("{operator} is neither a sum nor a softmax merge")]
    NeitherSumNorMerge {
        /// The operator.
        operator: String,
    },
    /// The payload is a product of several values within a column.
    #[error("what is weighted is no parameter alone")]
    WeightedProduct,
    /// The payload has several axes within a column.
    #[error("what is weighted has several axes within a column")]
    WeightedAxes,
    /// The payload is computed, or belongs to rows.
    #[error("what is weighted is no parameter of the columns")]
    WeightedValue,
    /// Rows and columns have more axes of their own than tiles.
    #[error("more than three axes within rows and columns")]
    InnerAxes,
    /// A reduction beneath the sums over pairs is not a sum.
    #[error("what is reduced over {axis} is not a sum")]
    NotSum {
        /// The axis.
        axis: String,
    },
    /// A contraction is not of a row and a column.
    #[error("what is summed over {axis} is no product of a row and a column")]
    NotRowAndColumn {
        /// The axis.
        axis: String,
    },
    /// The factors of a contraction are computed.
    #[error("what is summed over {axis} is computed from parameters")]
    Computed {
        /// The axis.
        axis: String,
    },
    /// The left factor of a contraction has no axis of its own.
    #[error("no axis of rows beneath the sum over {axis}")]
    NoRows {
        /// The axis.
        axis: String,
    },
    /// Contractions have rows along different axes.
    #[error("contractions have different rows")]
    SeveralRows,
    /// There is no sum over rows beside those over columns.
    #[error("no sum over rows is beside those over columns")]
    NotAcross,
    /// The sum over rows has other weights than one of the sums over columns.
    #[error("the sum over rows has other weights than those over columns")]
    AcrossWeights,
    /// The sum over rows weights something else than a factor of the contractions.
    #[error("the sum over rows weights no parameter that the rows of a contraction are")]
    AcrossLeaf,
    /// Sums over rows beside those over columns are of factors of 16 bits alone.
    #[error("sums over rows and over columns together need factors of bf16 or f16")]
    AcrossType,
    /// The columns that a row sees do not lie at a distance from it.
    #[error("the columns that a row sees are not those at some distances from it")]
    AcrossLimits,
    /// Rows and columns are not of one type that tiles can have.
    #[error("rows and columns are not all bf16, all f16 or all f32")]
    PairTypes,
}

impl Refusal {
    /// Whether the stage is of quite another sort, and lacks nothing that stages of the schedule's sort have.
    pub fn is_of_another_sort(&self) -> bool {
        use Refusal::{BothWays, NoContraction, NoMatrices, NoPairs, NoPartialSums, NoScan, OneDirection, Scanned};
        matches!(
            self,
            Scanned | NoScan | NoMatrices | NoContraction | OneDirection | BothWays | NoPartialSums | NoPairs
        )
    }
}
