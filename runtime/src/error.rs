//! Everything that can go wrong, in words that name the tensor, the axis and the sizes.

use cudarc::driver::DriverError;
use oplus_dsl::Elem;

/// Why a call failed. Nothing has been written to a caller's tensor when a call is refused before it starts; a fault of
/// the device is reported by the call that meets it. [`source`](std::error::Error::source) gives the error of the driver
/// that it comes from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- what the caller passed
    /// Two tensors disagree about the size of an axis.
    #[error("axis {axis} has size {first_size} in `{first}` but {second_size} in `{second}`")]
    ShapeMismatch {
        /// Name of the axis.
        axis: String,
        /// The tensor that was seen first.
        first: String,
        /// Its size along the axis.
        first_size: usize,
        /// The tensor that disagrees.
        second: String,
        /// Its size along the axis.
        second_size: usize,
    },
    /// A tensor has another number of axes than its parameter.
    #[error("`{tensor}` has {found} axes, it must have {expected}: [{axes}]")]
    Rank {
        /// Name of the parameter or output.
        tensor: String,
        /// Its axes, `B, D, L`.
        axes: String,
        /// How many there are.
        expected: usize,
        /// How many the tensor has.
        found: usize,
    },
    /// A tensor has another element type than its parameter.
    #[error("`{tensor}` must store {expected}, it stores {found}")]
    WrongElem {
        /// Name of the parameter or output.
        tensor: String,
        /// The type that it must store.
        expected: String,
        /// The type that it stores.
        found: Elem,
    },
    /// Two tensors that take the call's element type disagree about it.
    #[error(
        "`{first}` stores {first_elem} but `{second}` stores {second_elem}; both take the element type of the call"
    )]
    ElemMismatch {
        /// The tensor that was seen first.
        first: String,
        /// The type that it stores.
        first_elem: Elem,
        /// The tensor that disagrees.
        second: String,
        /// The type that it stores.
        second_elem: Elem,
    },
    /// A required tensor was left out.
    #[error("`{tensor}` is missing; it has no default")]
    MissingTensor {
        /// Name of the parameter.
        tensor: String,
    },
    /// A list of tensors has the wrong length.
    #[error("{expected} {what} are needed, {found} were given")]
    Count {
        /// `inputs`, `outputs`, `cotangents` or `gradients`.
        what: &'static str,
        /// How many the kernel has.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// No tensor of the call tells the size of an axis.
    #[error("the size of axis {axis} is unknown: none of the tensors given has it")]
    UnknownSize {
        /// Name of the axis.
        axis: String,
    },
    /// A list of offsets of another length than the sequences have ends.
    #[error(transparent)]
    Ends(#[from] oplus_dsl::ir::EndsError),
    /// A size is given for an axis that the kernel does not have.
    #[error("`{kernel}` has no axis {axis}; its axes are {known}")]
    UnknownAxis {
        /// The axis.
        axis: String,
        /// The kernel.
        kernel: String,
        /// The axes that it has.
        known: String,
    },
    /// No tensor of the call tells the call's element type.
    #[error("the element type of the call is unknown: none of the tensors given takes it")]
    UnknownElem,
    /// A shape and the number of elements disagree.
    #[error("shape {shape:?} holds {expected} elements, {found} were given")]
    Length {
        /// The shape asked for.
        shape: Vec<usize>,
        /// Its number of elements.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A shape has more elements than memory has addresses, or than indices count.
    #[error("shape {shape:?} is too large")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// A call computes more elements than 64-bit indices count, however few its tensors store.
    #[error("kernel `{kernel}` computes over {axes}: more elements than 64-bit indices count")]
    TooManyElements {
        /// Name of the kernel.
        kernel: String,
        /// The axes and their sizes, `M=1048576, K=1048576`.
        axes: String,
    },
    /// A view that the tensor does not have.
    #[error("no such view of a tensor of shape {shape:?}: {reason}")]
    View {
        /// Shape of the tensor.
        shape: Vec<usize>,
        /// The fault.
        reason: String,
    },
    /// Memory of the CPU begins where no element of the type can.
    #[error("address {address:#x} is no place for elements of type {elem}, which begin at multiples of {align}")]
    Misaligned {
        /// The address.
        address: usize,
        /// The type that is stored there.
        elem: Elem,
        /// The alignment: the address must be a multiple of it.
        align: usize,
    },
    /// An output may only be read.
    #[error("`{tensor}` is read-only; an output needs memory that may be written")]
    ReadOnly {
        /// The output.
        tensor: String,
    },
    /// An output shares memory with another tensor of the call.
    #[error("`{first}` and `{second}` overlap in memory; an output needs memory of its own")]
    Overlap {
        /// The output.
        first: String,
        /// The other tensor.
        second: String,
    },
    /// Two indices of an output name the same element.
    #[error("`{tensor}` overlaps itself: strides {strides:?} of shape {shape:?} name an element twice")]
    SelfOverlap {
        /// The output.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides.
        strides: Vec<i64>,
    },
    /// Tensors of one call live on different devices or streams.
    #[error("`{first}` is on {first_device} but `{second}` is on {second_device}; move one with `to_device`")]
    DeviceMismatch {
        /// The tensor that was seen first.
        first: String,
        /// Where it is.
        first_device: String,
        /// The tensor that disagrees.
        second: String,
        /// Where it is.
        second_device: String,
    },
    // ---- the program
    /// The kernel's text is not a valid program.
    #[error("kernel `{kernel}` is not a valid program: {reason}")]
    Program {
        /// Name of the kernel.
        kernel: String,
        /// The fault.
        reason: String,
    },
    /// The kernel has no gradient.
    #[error("kernel `{kernel}` has no gradient: {reason}")]
    NoGradient {
        /// Name of the kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
    /// The planner found no way to run the program on the device.
    #[error("kernel `{kernel}` cannot be planned: {reason}")]
    Plan {
        /// Name of the kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
    // ---- several ranks
    /// The kernel cannot be divided along the axis.
    #[error("kernel `{kernel}` cannot be sharded: {reason}")]
    NotSharded {
        /// Name of the kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
    /// Ranks of a group do not do the same.
    #[error("ranks {rank} and {other} disagree about {what}")]
    RanksDisagree {
        /// This rank.
        rank: usize,
        /// The other one.
        other: usize,
        /// The thing that they disagree about.
        what: String,
    },
    /// A rank does not answer. The group cannot be used any more.
    #[error("rank {rank} is lost: {reason}")]
    LostRank {
        /// The rank.
        rank: usize,
        /// The facts that are known of it.
        reason: String,
    },
    /// An exchange by NCCL has not ended, and it is not known which rank is to blame. The group cannot be used any more.
    #[error("rank {rank} of {size} has lost the others: {reason}")]
    LostRanks {
        /// This rank.
        rank: usize,
        /// How many ranks there are.
        size: usize,
        /// The work that has not ended.
        reason: String,
    },
    /// There is no usable NCCL.
    #[error("NCCL is not available: {reason}")]
    NoNccl {
        /// Why.
        reason: String,
    },
    /// NCCL has refused something.
    #[error("NCCL: {call} failed: {reason}")]
    Nccl {
        /// The call of NCCL that failed.
        call: &'static str,
        /// The message of NCCL.
        reason: String,
    },
    /// The number by which ranks find each other could not be written or read.
    #[error("the unique id at {path}: {reason}")]
    UniqueId {
        /// The file.
        path: String,
        /// The fault, in words.
        reason: String,
    },
    /// A group does not have the rank.
    #[error("there is no rank {rank} in a group of {size}")]
    NoRank {
        /// The rank asked for.
        rank: usize,
        /// How many there are.
        size: usize,
    },
    // ---- kernel sources
    /// No source has the kernel.
    #[error("no PTX for kernel {key}; make it with `{command}`, or build with the feature `jit`")]
    NoKernel {
        /// Key of the missing kernel.
        key: String,
        /// The command that makes it.
        command: String,
    },
    /// A kernel source is unreadable or contradicts itself.
    #[error("kernel source {path}: {reason}")]
    Source {
        /// The file or folder.
        path: String,
        /// The fault.
        reason: String,
    },
    /// The compiler failed.
    #[error("compiling kernel {key} failed: {reason}")]
    Compile {
        /// Key of the kernel.
        key: String,
        /// The message of the compiler.
        reason: String,
    },
    // ---- the device
    /// There is no usable CUDA driver.
    #[error("CUDA is not available: {reason}")]
    NoCuda {
        /// Why.
        reason: String,
        /// The driver's error, if there is a driver.
        source: Option<DriverError>,
    },
    /// The GPU is older than every kernel.
    #[error("{device} has compute capability {major}.{minor}; kernels need 8.0 or newer")]
    DeviceTooOld {
        /// Name of the device.
        device: String,
        /// Compute capability.
        major: i32,
        /// Compute capability.
        minor: i32,
    },
    /// There is not enough memory. Nothing was kept of what had been allocated for the call.
    #[error("out of memory: {bytes} bytes could not be allocated on {device}")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: usize,
        /// Where.
        device: String,
    },
    /// The driver does not accept a kernel.
    #[error("the driver refused the PTX of kernel {key}: {log}")]
    PtxRejected {
        /// Key of the kernel.
        key: String,
        /// The message of the driver.
        log: String,
        /// The driver's error.
        source: Option<DriverError>,
    },
    /// A stream is being captured into a CUDA graph, in which what was asked for has no place. The capture goes on.
    #[error("{stream} is being captured into a graph: {reason}")]
    Captured {
        /// The stream.
        stream: String,
        /// Why this is not possible now.
        reason: String,
    },
    /// An earlier fault has made the CUDA context unusable. Drop every tensor of that context and make a new one.
    #[error("the CUDA context is unusable after an earlier fault: {reason}")]
    Poisoned {
        /// The driver's name of the fault.
        reason: String,
        /// The driver's error.
        source: Option<DriverError>,
    },
    /// Any other refusal of the driver.
    #[error("{call} failed: {reason}")]
    Driver {
        /// The operation that was attempted.
        call: &'static str,
        /// The driver's name of the error.
        reason: String,
        /// The driver's error; `None` where the driver was not asked.
        source: Option<DriverError>,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use cudarc::driver::sys::CUresult;

    use super::*;

    #[test]
    fn what_the_driver_refuses_has_the_drivers_error_as_its_source() {
        let cause = DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        let (reason, log, key, source) = (String::new(), String::new(), String::new(), Some(cause));
        let errors = [
            Error::NoCuda { reason: reason.clone(), source },
            Error::PtxRejected { key, log, source },
            Error::Poisoned { reason: reason.clone(), source },
            Error::Driver { call: "cuLaunchKernel", reason, source },
        ];
        for error in errors {
            assert_eq!(error.source().and_then(|e| e.downcast_ref::<DriverError>()), Some(&cause));
        }
        assert!(Error::UnknownElem.source().is_none());
    }
}
