//! Loading kernels into a context.

use std::ffi::{CStr, CString, c_void};
use std::sync::{Arc, OnceLock, PoisonError};

use cudarc::driver::{CudaContext, DriverError, result, sys};
use oplus_codegen::plan::Launch;
use oplus_codegen::target::Isa;

use super::allocation::{defer, retry};
use super::capture::relaxed;
use super::{Context, background, is_sticky, name};
use crate::Error;
use crate::source::{Code, Found, Later};

/// Dynamic shared memory that a kernel may use without asking.
const DEFAULT_SHARED_BYTES: u32 = 48 * 1024;

/// A loaded kernel.
pub(crate) struct Function {
    pub(super) raw: sys::CUfunction,
    /// Registers per thread.
    pub(crate) registers: u32,
    /// Bytes of local memory per thread: what did not fit into registers.
    pub(crate) local_bytes: u32,
    /// Whether it waits for the launch ahead of it before it touches memory.
    pub(super) waits: bool,
    /// The kernel that a kernel of the fast-compile tier replaces, once it is loaded; `None` inside when it could not be.
    itself: Option<Box<OnceLock<Option<Function>>>>,
    _module: Module,
}

impl Function {
    /// The kernel that a launch runs now: in place of one of the fast-compile tier the kernel itself, when that is loaded or the
    /// launch `must` wait for it.
    pub(crate) fn now(&self, must: impl FnOnce() -> bool) -> &Function {
        let Some(itself) = &self.itself else { return self };
        let loaded = match itself.get() {
            None if must() => Some(itself.wait()),
            loaded => loaded,
        };
        loaded.and_then(Option::as_ref).unwrap_or(self)
    }
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Module {}

/// A loaded module, unloaded when dropped.
struct Module {
    raw: sys::CUmodule,
    context: Arc<CudaContext>,
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the context is alive.
        let current = unsafe { result::ctx::set_current(self.context.cu_ctx()) };
        // SAFETY: nothing uses the module's functions any more; the driver waits for launches.
        let unload = || unsafe { result::module::unload(self.raw) };
        if !self.raw.is_null() && retry(current.and_then(|()| relaxed(unload).map(|_| ()))).is_err() {
            let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
            defer(Box::new(Module { raw, context: self.context.clone() }));
        }
    }
}

/// A kernel that a function of the fast-compile tier replaces for now, to be loaded on the background thread.
struct Awaited {
    function: Arc<Function>,
    context: Arc<Context>,
    launch: Launch,
}

impl Awaited {
    fn load(self, find: Later) {
        let load = |code: Code| self.context.load(&self.launch, &self.launch.key.to_string(), &code, Effort::Full);
        // A kernel that cannot be had does not matter to calls that another serves.
        if let Ok(loaded) = find().and_then(load) {
            self.settle(Some(loaded));
        }
    }

    fn settle(&self, loaded: Option<Function>) {
        if let Some(itself) = &self.function.itself {
            let _ = itself.set(loaded);
        }
    }
}

impl Drop for Awaited {
    /// Whoever waits must not wait for ever.
    fn drop(&mut self) {
        self.settle(None);
    }
}

/// How much the driver does for a fast kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    Full,
    Little,
}

/// The driver's optimisation level for kernels of the fast-compile tier: it compiles them sooner than the highest level does,
/// and they run nearly as fast. Level 0 makes them many times slower.
const LITTLE_EFFORT: usize = 1;

impl Context {
    /// The kernel of a launch, loaded at its first use from what `find` gives.
    pub(crate) fn function(
        self: &Arc<Context>,
        launch: &Launch,
        find: impl FnOnce() -> Result<Found, Error>,
    ) -> Result<Arc<Function>, Error> {
        let key = launch.key.to_string();
        let functions = || self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions().get(&key) {
            return Ok(function.clone());
        }
        background::put_off();
        let Found { code, itself } = find()?;
        let effort = if itself.is_some() { Effort::Little } else { Effort::Full };
        let mut own = self.load(launch, &key, &code, effort)?;
        own.itself = itself.as_ref().map(|_| Box::default());
        let own = Arc::new(own);
        background::put_off();
        let function = functions().entry(key).or_insert_with(|| own.clone()).clone();
        if let Some(find) = itself.filter(|_| Arc::ptr_eq(&function, &own)) {
            let awaited = Awaited { function: own, context: self.clone(), launch: launch.clone() };
            background::run(Box::new(move || awaited.load(find)));
        }
        Ok(function)
    }

    fn load(&self, launch: &Launch, key: &str, code: &Code, effort: Effort) -> Result<Function, Error> {
        self.bind()?;
        let rejected = |log: String, source| Error::PtxRejected { key: key.to_owned(), log, source };
        let module = self.load_module(code, key, effort)?;
        let symbol = CString::new(launch.symbol.as_str()).map_err(|e| rejected(e.to_string(), None))?;
        // SAFETY: the module is alive.
        let raw = unsafe { result::module::get_function(module.raw, symbol) }
            .map_err(|e| rejected(format!("it has no kernel `{}` ({})", launch.symbol, name(e)), Some(e)))?;
        use sys::CUfunction_attribute_enum as A;
        // SAFETY: the function is alive. Asking for an attribute also makes the driver load its code now, not at the
        // first launch, which may happen while a graph is being captured.
        let attribute = |a| unsafe { result::function::get_function_attribute(raw, a) };
        let attribute = |a| attribute(a).map_err(|e| self.failure("cuFuncGetAttribute", e));
        let registers = attribute(A::CU_FUNC_ATTRIBUTE_NUM_REGS)? as u32;
        let local_bytes = attribute(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)? as u32;
        if launch.shared_bytes > DEFAULT_SHARED_BYTES {
            let (a, bytes) = (A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes as i32);
            // SAFETY: the function is alive.
            let set = unsafe { result::function::set_function_attribute(raw, a, bytes) };
            set.map_err(|e| self.failure("cuFuncSetAttribute", e))?;
        }
        Ok(Function { raw, registers, local_bytes, waits: code.waits(), itself: None, _module: module })
    }

    /// Machine code where it is for this device and the driver takes it, else PTX.
    fn load_module(&self, code: &Code, key: &str, effort: Effort) -> Result<Module, Error> {
        if let Some(cubin) = code.machine_code().filter(|_| self.target.isa == Isa::Sm90a) {
            match self.load_image(cubin, &mut [], effort) {
                Ok(module) => return Ok(module),
                Err(e) if is_sticky(e) => return Err(self.failure("cuModuleLoadDataEx", e)),
                Err(_) => {}
            }
        }
        let rejected = |log: String, source| Error::PtxRejected { key: key.to_owned(), log, source };
        let text = CString::new(code.ptx()).map_err(|e| rejected(e.to_string(), None))?;
        let mut log = [0_u8; 8192];
        self.load_image(text.as_bytes_with_nul(), &mut log, effort).map_err(|e| {
            if is_sticky(e) {
                return self.failure("cuModuleLoadDataEx", e);
            }
            log[log.len() - 1] = 0;
            let said = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
            rejected(format!("{}: {}", name(e), said.trim()), Some(e))
        })
    }

    /// Loads a PTX text that ends in a zero, or machine code; the driver's complaints go to `log`.
    fn load_image(&self, image: &[u8], log: &mut [u8], effort: Effort) -> Result<Module, DriverError> {
        use sys::CUjit_option as Option;
        let (mut options, mut values) = (vec![], vec![]);
        if !log.is_empty() {
            options.extend([Option::CU_JIT_ERROR_LOG_BUFFER, Option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]);
            values.extend([log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void]);
        }
        if effort == Effort::Little {
            options.push(Option::CU_JIT_OPTIMIZATION_LEVEL);
            values.push(LITTLE_EFFORT as *mut c_void);
        }
        let (mut raw, count) = (std::ptr::null_mut(), options.len() as u32);
        // SAFETY: the image says itself how long it is, there are `count` options and as many values, and the log is as
        // long as it says.
        let loaded = relaxed(|| unsafe {
            sys::cuModuleLoadDataEx(&mut raw, image.as_ptr().cast(), count, options.as_mut_ptr(), values.as_mut_ptr())
        });
        loaded?.result().map(|()| Module { raw, context: self.raw.clone() })
    }
}
