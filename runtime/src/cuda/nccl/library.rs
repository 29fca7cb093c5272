//! Finding NCCL's library, at run time, and the few functions of it that are used.

use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library as Loaded;

use crate::Error;

/// NCCL's handle of a communicator.
pub(super) type Raw = *mut c_void;

/// The bytes that `ncclGetUniqueId` writes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Id(pub(super) [u8; 128]);

/// `ncclConfig_t` as NCCL 2.18 has it. Newer ones accept it by its version.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    splits_share: c_int,
}

/// `ncclSuccess`.
pub(super) const SUCCESS: c_int = 0;
/// `ncclRemoteError`.
pub(super) const REMOTE_ERROR: c_int = 6;
/// `ncclInProgress`.
pub(super) const IN_PROGRESS: c_int = 7;
/// `ncclUint8`.
pub(super) const BYTES: c_int = 1;

/// The oldest NCCL whose interface is used, as `ncclGetVersion` gives it.
const OLDEST: c_int = 21_800;
const MAGIC: c_uint = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

/// The variable that has the path of the library.
const VARIABLE: &str = "OPLUS_NCCL";
/// Names under which the system is asked for it. Packages for Python have only the first.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

macro_rules! library {
    ($($(#[$doc:meta])* $field:ident = $name:literal: fn($($arg:ty),*) -> $result:ty;)*) => {
        /// The library.
        pub(super) struct Library {
            $($(#[$doc])* pub(super) $field: unsafe extern "C" fn($($arg),*) -> $result,)*
            _library: Loaded,
        }

        impl Library {
            fn of(library: Loaded) -> Result<Library, Error> {
                $(let $field = function(&library, $name)?;)*
                Ok(Library { $($field,)* _library: library })
            }
        }
    };
}

library! {
    version = "ncclGetVersion": fn(*mut c_int) -> c_int;
    error_string = "ncclGetErrorString": fn(c_int) -> *const c_char;
    last_error = "ncclGetLastError": fn(Raw) -> *const c_char;
    unique_id = "ncclGetUniqueId": fn(*mut Id) -> c_int;
    init = "ncclCommInitRankConfig": fn(*mut Raw, c_int, Id, c_int, *mut Config) -> c_int;
    async_error = "ncclCommGetAsyncError": fn(Raw, *mut c_int) -> c_int;
    finalize = "ncclCommFinalize": fn(Raw) -> c_int;
    destroy = "ncclCommDestroy": fn(Raw) -> c_int;
    abort = "ncclCommAbort": fn(Raw) -> c_int;
    group_start = "ncclGroupStart": fn() -> c_int;
    group_end = "ncclGroupEnd": fn() -> c_int;
    /// From, to, count, type.
    all_gather = "ncclAllGather": fn(u64, u64, usize, c_int, Raw, sys::CUstream) -> c_int;
    /// From, to, count, type, root.
    broadcast = "ncclBroadcast": fn(u64, u64, usize, c_int, c_int, Raw, sys::CUstream) -> c_int;
    /// From, count, type, rank.
    send = "ncclSend": fn(u64, usize, c_int, c_int, Raw, sys::CUstream) -> c_int;
    /// To, count, type, rank.
    receive = "ncclRecv": fn(u64, usize, c_int, c_int, Raw, sys::CUstream) -> c_int;
}

fn function<F: Copy>(library: &Loaded, name: &str) -> Result<F, Error> {
    // SAFETY: the table declares every function as `nccl.h` does.
    let found = unsafe { library.get::<F>(name) };
    found.map(|function| *function).map_err(|_| no_nccl(format!("its library has no function `{name}`")))
}

fn no_nccl(reason: String) -> Error {
    Error::NoNccl { reason }
}

/// The library that the user names is not there, or is none.
fn not_loaded(path: &OsStr, error: &libloading::Error) -> Error {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    no_nccl(format!("${VARIABLE} is {}: {cause}", path.display()))
}

/// The library. What has failed is tried again at the next call.
pub(super) fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    match LIBRARY.get() {
        Some(library) => Ok(library),
        None => load().map(|library| LIBRARY.get_or_init(|| library)),
    }
}

fn load() -> Result<Library, Error> {
    let chosen = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let library = match &chosen {
        // SAFETY: the initialisers of the library have no preconditions; the user has named it.
        Some(path) => unsafe { Loaded::new(path) }.map_err(|e| not_loaded(path, &e))?,
        None => {
            // SAFETY: as above.
            let found = NAMES.iter().find_map(|name| unsafe { Loaded::new(*name) }.ok());
            let reason = || format!("the system does not find {}; ${VARIABLE} can have its path", NAMES[0]);
            found.ok_or_else(|| no_nccl(reason()))?
        }
    };
    let library = Library::of(library)?;
    let mut version = 0;
    // SAFETY: writes one integer.
    let code = unsafe { (library.version)(&mut version) };
    library.check("ncclGetVersion", code)?;
    if version < OLDEST {
        let shown = |v: c_int| format!("{}.{}", v / 10_000, v % 10_000 / 100);
        return Err(no_nccl(format!("it is version {}; {} or newer is needed", shown(version), shown(OLDEST))));
    }
    Ok(library)
}

impl Config {
    /// Of a communicator whose functions return before they are done.
    pub(super) fn non_blocking() -> Config {
        Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: OLDEST as c_uint,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            least_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: std::ptr::null(),
            splits_share: UNDEFINED,
        }
    }
}

impl Library {
    /// The result of a function that may also go on in the background.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), Error> {
        if matches!(code, SUCCESS | IN_PROGRESS) { Ok(()) } else { Err(self.failure(call, code)) }
    }

    /// An error of NCCL as ours.
    pub(super) fn failure(&self, call: &'static str, code: c_int) -> Error {
        // SAFETY: any number is accepted, and any communicator, also none.
        let texts = unsafe { [(self.error_string)(code), (self.last_error)(std::ptr::null_mut())] };
        let words = texts.into_iter().filter(|text| !text.is_null());
        // SAFETY: NCCL gives texts that end in a zero and stay.
        let words = words.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned());
        let words: Vec<String> = words.filter(|text| !text.is_empty()).collect();
        Error::Nccl { call, reason: words.join(": ") }
    }
}
