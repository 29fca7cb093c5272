//! Why a call cannot run on the CPU.

use oplus_dsl::Elem;
use thiserror::Error;

/// Why a call cannot run on the CPU.
#[derive(Clone, Debug, Error, PartialEq)]
pub(crate) enum CpuError {
    /// The program does not verify, or its element type is still open.
    #[error("the program is not valid: {reason}")]
    Invalid {
        /// The fault.
        reason: String,
    },
    /// Not one size per axis, input per parameter or output per result.
    #[error("the program has {expected} {what}, but {given} are given")]
    Count {
        /// Axes, parameters or outputs.
        what: &'static str,
        /// How many the program has.
        expected: usize,
        /// How many are given.
        given: usize,
    },
    /// A size beyond memory.
    #[error("axis `{axis}` cannot have size {size}")]
    Size {
        /// The axis.
        axis: String,
        /// Its size.
        size: usize,
    },
    /// A parameter without default is not given.
    #[error("parameter `{tensor}` is required")]
    Missing {
        /// The parameter.
        tensor: String,
    },
    /// A tensor that stores something else than the program says.
    #[error("`{tensor}` stores {found}, but the program expects {expected}")]
    WrongElem {
        /// The tensor.
        tensor: String,
        /// The type that the program expects.
        expected: Elem,
        /// The type that it stores.
        found: Elem,
    },
    /// Memory whose address or length does not suit its element type.
    #[error("memory is not aligned for elements of {elem}")]
    Misaligned {
        /// The type that it stores.
        elem: Elem,
    },
    /// A tensor with the wrong number of strides.
    #[error("`{tensor}` has {expected} axes, but {given} strides are given")]
    Rank {
        /// The tensor.
        tensor: String,
        /// How many axes it has.
        expected: usize,
        /// How many strides are given.
        given: usize,
    },
    /// A tensor whose strides lead out of its memory.
    #[error("`{tensor}` has {len} elements, but its strides reach elements {low} to {high}")]
    Bounds {
        /// The tensor.
        tensor: String,
        /// How many elements its memory has.
        len: usize,
        /// The least element that an index reaches.
        low: i128,
        /// The greatest.
        high: i128,
    },
    /// An output whose indices share elements, or interleave so that tasks cannot share its memory.
    #[error("output `{output}` has strides that overlap or interleave; give it nested strides")]
    Interleaved {
        /// The output.
        output: String,
    },
    /// Memory that cannot be had: for what stages pass on, or for what their tasks work with.
    #[error("out of memory: {bytes} bytes could not be allocated")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// An intermediate value with too many elements.
    #[error("value {value} must be kept in memory and has too many elements")]
    TooLarge {
        /// The value.
        value: String,
    },
    /// Too many operations, scans and reductions to be planned.
    #[error(
        "the program has {operations} operations, of which {combinations} combine along an axis, in {stages} stages: \
         too many to be planned together; split it into several kernels"
    )]
    TooManyOperations {
        /// All operations.
        operations: usize,
        /// Scans and reductions.
        combinations: usize,
        /// How many walks over tensors it takes.
        stages: usize,
    },
}
