//! Modules, kernels and launches.

use std::ffi::{CStr, c_char, c_void};

use super::{driver, element, put, text};
use crate::memory::Access;
use crate::ptx::{self, Kernel};
use crate::state::State;
use crate::work::{Effect, Use, Work};
use crate::{Code, error};

driver! {
    cuModuleLoadDataEx(
        module: *mut u64, image: *const c_char, _count: u32, _options: *const i32, _values: *const *const c_void,
    ) |state| {
        state.current()?;
        state.unsafe_call()?;
        if (0..4).all(|k| element(image, k) as u8 == b"\x7fELF"[k]) {
            return Err(error::NO_BINARY_FOR_GPU)
        }
        let kernel = ptx::parse(&text(image)).ok_or(error::INVALID_PTX)?;
        let handle = state.handle();
        state.modules.insert(handle, kernel);
        put(module, handle)
    }
    cuModuleUnload(module: u64) [module] |state| {
        state.unsafe_call()?;
        if state.modules.remove(&module).is_none() {
            state.find(format!("module {module:#x} is unloaded once too often"));
        }
    }
    cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) |state| {
        let kernel = state.modules.get(&module).ok_or(error::INVALID_HANDLE)?;
        if kernel.name != text(name) { return Err(error::NOT_FOUND) }
        put(function, module)
    }
    cuFuncGetAttribute(value: *mut i32, attribute: i32, _function: u64) |state| {
        const NUM_REGS: i32 = 4;
        let _ = state;
        put(value, if attribute == NUM_REGS { 32 } else { 0 })
    }
    cuFuncSetAttribute(_function: u64, _attribute: i32, _value: i32) |state| { let _ = state; }
    cuLaunchKernel(
        function: u64, _x: u32, _y: u32, _z: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, stream: u64,
        args: *const *const u64, _extra: *const c_void,
    ) |state| {
        let kernel = state.kernel(function)?;
        state.launch(&kernel, stream, args)?
    }
    cuLaunchKernelEx(config: *const Config, function: u64, args: *const *const u64, _extra: *const c_void) |state| {
        let (kernel, config) = (state.kernel(function)?, element(config, 0));
        let is_early = |k| element(config.attributes, k).lets_begin_early();
        if (0..config.attribute_count as usize).any(is_early) {
            state.early_launches += 1;
            if !kernel.waits {
                state.find(format!("`{}` is launched early and does not wait", kernel.name));
            }
        }
        state.launch(&kernel, config.stream, args)?
    }
    cuLaunchCooperativeKernel(
        function: u64, _x: u32, _y: u32, _z: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, stream: u64,
        args: *const *const u64,
    ) |state| {
        let kernel = state.kernel(function)?;
        state.launch(&kernel, stream, args)?
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    _grid: [u32; 3],
    _block: [u32; 3],
    _shared: u32,
    stream: u64,
    attributes: *const Attribute,
    attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: i32,
    value: [u64; 8],
}

impl Attribute {
    /// Whether it is that of programmatic stream serialization, and set.
    fn lets_begin_early(&self) -> bool {
        self.id == 6 && self.value[0] as u32 == 1
    }
}

impl State {
    fn kernel(&mut self, function: u64) -> Result<Kernel, Code> {
        let kernel = self.modules.get(&function).cloned();
        if kernel.is_none() {
            self.find("the kernel's module has been unloaded".into());
        }
        kernel.ok_or(error::INVALID_HANDLE)
    }

    fn launch(&mut self, kernel: &Kernel, stream: u64, args: *const *const u64) -> Result<(), Code> {
        let uses = self.arguments(kernel, args);
        self.submit(stream, Work { uses, effect: Effect::Nothing })
    }

    /// The memory that a kernel's arguments point to.
    fn arguments(&self, kernel: &Kernel, args: *const *const u64) -> Vec<Use> {
        let mut uses = vec![];
        for (k, param) in kernel.params.iter().enumerate().filter(|(_, param)| param.bytes == 8) {
            let address = element(element(args, k), 0);
            let access = if param.written { Access::Write } else { Access::Read };
            if self.allocation_of(address).is_some() {
                uses.push(Use { address, bytes: 0, access });
            }
        }
        uses
    }
}

/// The driver's names of errors.
fn name(code: Code) -> &'static CStr {
    match code {
        0 => c"CUDA_SUCCESS",
        error::INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        error::OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        error::INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        error::ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        error::CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        error::CAPTURE_ISOLATION => c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        error::UNKNOWN => c"CUDA_ERROR_UNKNOWN",
        _ => c"CUDA_ERROR",
    }
}

driver! {
    cuGetErrorName(code: Code, target: *mut *const c_char) |state| { let _ = state; put(target, name(code).as_ptr()) }
    cuGetErrorString(code: Code, target: *mut *const c_char) |state| { let _ = state; put(target, name(code).as_ptr()) }
}
