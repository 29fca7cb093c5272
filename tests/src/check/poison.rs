//! A CUDA context that a kernel has made unusable, which no call survives: in a process of its own.

use std::fmt::Debug;
use std::process::Command;

use cudarc::driver::CudaContext;
use oplus::source::{Code, Isa, KernelSource, Launch, register};
use oplus::{Device, Elem, Error, Kernel, Tensor, kernels};

use super::CheckError;
use super::case::Extent;
use super::faults::{affine, affine_inputs};
use super::oracle::Agreement;
use super::scenario::{Scenario, World, unexpected};

/// The flag that makes the check program do [`run`] and nothing else.
pub const FLAG: &str = "--poisoned";

/// A process like this one must do all of [`run`], and end by itself.
pub fn scenario() -> Scenario {
    Scenario::new("faults/poisoned context", |_| {
        let program = std::env::current_exe().and_then(|program| Command::new(program).arg(FLAG).output());
        let output = program.map_err(|e| CheckError::Unexpected(e.to_string()))?;
        if output.status.success() {
            return Ok(Agreement::default());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        unexpected(format!("the process ends with {}: {said}", output.status))
    })
}

/// A kernel that traps: whoever waits for it, and every later call, is told so in words; nothing panics, also not when
/// all that lived on the GPU is dropped; the CPU goes on working.
///
/// # Errors
/// An error that says what should not have happened.
pub fn run() -> Result<(), CheckError> {
    static TRAPPING: Kernel = Kernel::new(
        "trapping",
        "program trapping { axes N; param x: f32[N]; %0: f32[N] = param x; %1: f32[N] = sin(%0); output y: f32[N] = %1; }",
    );
    // SAFETY: the kernel takes no arguments, touches no memory and traps.
    #[allow(unsafe_code)]
    unsafe {
        register(Trap);
    }
    let world = World { context: CudaContext::new(0)?, extent: Extent::Quick, portable: false };
    let (device, other) = (world.device()?, world.device()?);
    let on_the_host = affine_inputs(&[3, 10_007], &Device::Cpu, 1)?;
    let inputs = affine_inputs(&[3, 10_007], &device, 1)?;
    let elsewhere = affine_inputs(&[3, 10_007], &other, 1)?;
    let kernel = kernels::affine::kernel();
    let (outputs, call) = kernel.call(&[Some(&inputs[0]), Some(&inputs[1]), None])?;
    device.synchronize()?;
    // The launch itself succeeds: the fault is met by whoever comes next.
    let trapped = TRAPPING.call(&[Some(&Tensor::zeros(Elem::F32, &[100], &device)?)])?;
    is_poisoned("waiting", device.synchronize())?;
    for _ in 0..3 {
        is_poisoned("a copy to the host", outputs[0].to_vec::<f32>())?;
        is_poisoned("a copy to the device", on_the_host[0].to_device(&device))?;
        is_poisoned("an allocation", Tensor::zeros(Elem::F32, &[100], &device))?;
        is_poisoned("a call", affine(&inputs))?;
        is_poisoned("a gradient", kernel.backward(&call, &[Some(&outputs[0]), None]))?;
        is_poisoned("a call on another stream", affine(&elsewhere))?;
        is_poisoned("the device", Device::cuda(0))?;
    }
    drop((outputs, call, trapped, inputs, elsewhere, device, other, world));
    let h = affine(&on_the_host)?.to_vec::<f32>()?;
    if h.iter().all(|h| h.is_finite()) { Ok(()) } else { unexpected("the CPU computes nonsense") }
}

/// The source of a kernel that traps.
struct Trap;

impl KernelSource for Trap {
    fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Code>, Error> {
        let ptx = || {
            let symbol = &launch.symbol;
            format!(".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry {symbol}() {{ trap; ret; }}\n")
        };
        Ok(launch.stage.program.name.starts_with("trapping").then(|| Code::from(ptx())))
    }
}

/// Checks that a call says in words that the context is unusable.
fn is_poisoned<T: Debug>(what: &str, result: Result<T, impl Into<CheckError>>) -> Result<(), CheckError> {
    match result.map_err(Into::into) {
        Err(CheckError::Oplus(Error::Poisoned { reason, .. })) if reason.starts_with("CUDA_ERROR") => Ok(()),
        other => unexpected(format!("after a trap {what} gives {other:?}")),
    }
}
