//! NCCL without GPUs: ranks are threads of this process, and bytes move when the last rank that they concern has come.
//!
//! The numbers that a rank gives are read when its call is made; those that it gets are written while it asks how its calls are
//! getting on, both as operations of the stream, whose order the driver checks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use crate::memory::Access;
use crate::state::look;
use crate::work::{Effect, Use, Work};

/// A result of NCCL: 0, or the number of an error.
type Result = i32;

const SUCCESS: Result = 0;
const SYSTEM_ERROR: Result = 2;
const INTERNAL_ERROR: Result = 3;
const INVALID_ARGUMENT: Result = 4;
const REMOTE_ERROR: Result = 6;
const IN_PROGRESS: Result = 7;
/// 2.28.9.
const VERSION: i32 = 22_809;

/// `ncclUniqueId`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
struct Id([u8; 128]);

/// Ranks that have one id.
#[derive(Default)]
struct Room {
    here: BTreeSet<i32>,
    /// The ranks that have left.
    gone: BTreeSet<i32>,
    /// Bytes on their way, from whom and to whom.
    mail: BTreeMap<(i32, i32), VecDeque<Vec<u8>>>,
}

/// A communicator.
struct Rank {
    id: Id,
    rank: i32,
    size: i32,
    /// The messages that it waits for: from whom, to which address and on which stream, how many bytes.
    awaited: VecDeque<(i32, u64, u64, usize)>,
    error: Result,
}

#[derive(Default)]
struct World {
    last: u64,
    rooms: BTreeMap<Id, Room>,
    ranks: BTreeMap<u64, Rank>,
}

/// A call that waits for the end of its group.
enum Call {
    Give { to: Vec<i32>, from: u64, bytes: usize },
    Get { from: i32, to: u64, bytes: usize },
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

thread_local! {
    static GROUP: RefCell<Vec<(u64, u64, Call)>> = const { RefCell::new(vec![]) };
}

fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    f(WORLD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The error that a function is made to give.
fn fault(name: &str) -> Option<Result> {
    (std::env::var("OPLUS_TEST_NCCL_FAIL").as_deref() == Ok(name)).then_some(SYSTEM_ERROR)
}

fn put<T>(target: *mut T, value: T) {
    // SAFETY: the caller gives room for the result.
    unsafe { target.write(value) };
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut i32) -> Result {
    let old = std::env::var("OPLUS_TEST_NCCL_VERSION").ok().and_then(|version| version.parse().ok());
    put(version, old.unwrap_or(VERSION));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: Result) -> *const c_char {
    let text: &CStr = if code == SYSTEM_ERROR { c"unhandled system error" } else { c"another error" };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_rank: u64) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: *mut Id) -> Result {
    if let Some(code) = fault("ncclGetUniqueId") {
        return code;
    }
    let number = with(|world| {
        world.last += 1;
        world.last
    });
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    put(id, Id(bytes));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(handle: *mut u64, size: i32, id: Id, rank: i32, config: *const c_void) -> Result {
    if let Some(code) = fault("ncclCommInitRankConfig") {
        return code;
    }
    if config.is_null() || !(0..size).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    with(|world| {
        world.last += 1;
        world.rooms.entry(id).or_default().here.insert(rank);
        world.ranks.insert(world.last, Rank { id, rank, size, awaited: VecDeque::new(), error: SUCCESS });
        put(handle, world.last);
    });
    IN_PROGRESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(handle: u64, code: *mut Result) -> Result {
    with(|world| {
        let World { rooms, ranks, .. } = world;
        let Some(rank) = ranks.get_mut(&handle) else { return INVALID_ARGUMENT };
        let room = rooms.entry(rank.id).or_default();
        let is_met = room.here.len() == rank.size as usize;
        let is_done = is_met && rank.error == SUCCESS && rank.get(room);
        put(code, if is_done || rank.error != SUCCESS { rank.error } else { IN_PROGRESS });
        SUCCESS
    })
}

impl Rank {
    /// Writes what has come, in order. Whether everything has.
    fn get(&mut self, room: &mut Room) -> bool {
        while let Some((from, to, stream, bytes)) = self.awaited.front().copied() {
            let Some(came) = room.mail.get_mut(&(from, self.rank)).and_then(VecDeque::pop_front) else {
                self.error = if room.gone.contains(&from) { REMOTE_ERROR } else { SUCCESS };
                return false;
            };
            self.awaited.pop_front();
            let work = Work::copy((came.as_ptr() as u64, to), (false, true), bytes);
            let done = came.len() == bytes && look(|state| state.submit(stream, work)).is_ok();
            self.error = if done { SUCCESS } else { INTERNAL_ERROR };
        }
        true
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> Result {
    fault("ncclGroupStart").unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> Result {
    let calls = GROUP.take();
    if let Some(code) = fault("ncclGroupEnd") {
        return code;
    }
    with(|world| calls.into_iter().for_each(|(handle, stream, call)| world.make(handle, stream, call)));
    IN_PROGRESS
}

impl World {
    fn make(&mut self, handle: u64, stream: u64, call: Call) {
        let Some(rank) = self.ranks.get_mut(&handle) else { return };
        match call {
            Call::Get { from, to, bytes } => rank.awaited.push_back((from, to, stream, bytes)),
            Call::Give { to, from, bytes } => {
                let uses = vec![Use { address: from, bytes: bytes as u64, access: Access::Read }];
                let read = look(|state| state.submit(stream, Work { uses, effect: Effect::Nothing }));
                if read.is_err() {
                    rank.error = INTERNAL_ERROR;
                    return;
                }
                // SAFETY: memory of the device is memory of this process, and is never given back.
                let given = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
                let mail = &mut self.rooms.entry(rank.id).or_default().mail;
                to.into_iter().for_each(|to| mail.entry((rank.rank, to)).or_default().push_back(given.clone()));
            }
        }
    }
}

/// Notes calls of a group.
fn note(name: &str, handle: u64, stream: u64, calls: impl FnOnce(&Rank) -> Vec<Call>) -> Result {
    if let Some(code) = fault(name) {
        return code;
    }
    let calls = with(|world| world.ranks.get(&handle).map(calls));
    let Some(calls) = calls else { return INVALID_ARGUMENT };
    GROUP.with_borrow_mut(|group| group.extend(calls.into_iter().map(|call| (handle, stream, call))));
    IN_PROGRESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(from: u64, to: u64, bytes: usize, _kind: i32, handle: u64, stream: u64) -> Result {
    note("ncclAllGather", handle, stream, |rank| {
        let get = |other: i32| Call::Get { from: other, to: to + other as u64 * bytes as u64, bytes };
        let give = Call::Give { to: (0..rank.size).collect(), from, bytes };
        [give].into_iter().chain((0..rank.size).map(get)).collect()
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    from: u64,
    to: u64,
    bytes: usize,
    _kind: i32,
    root: i32,
    handle: u64,
    stream: u64,
) -> Result {
    note("ncclBroadcast", handle, stream, |rank| {
        let give = (rank.rank == root).then(|| Call::Give { to: (0..rank.size).collect(), from, bytes });
        give.into_iter().chain([Call::Get { from: root, to, bytes }]).collect()
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(from: u64, bytes: usize, _kind: i32, to: i32, handle: u64, stream: u64) -> Result {
    note("ncclSend", handle, stream, |_| vec![Call::Give { to: vec![to], from, bytes }])
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(to: u64, bytes: usize, _kind: i32, from: i32, handle: u64, stream: u64) -> Result {
    note("ncclRecv", handle, stream, |_| vec![Call::Get { from, to, bytes }])
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(handle: u64) -> Result {
    with(|world| if world.ranks.contains_key(&handle) { SUCCESS } else { INVALID_ARGUMENT })
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: u64) -> Result {
    leave(handle)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(handle: u64) -> Result {
    leave(handle)
}

/// Ends a communicator. Ending one twice is a finding.
fn leave(handle: u64) -> Result {
    let left = with(|world| {
        let rank = world.ranks.remove(&handle)?;
        world.rooms.entry(rank.id).or_default().gone.insert(rank.rank);
        Some(())
    });
    if left.is_some() {
        return SUCCESS;
    }
    look(|state| state.find(format!("communicator {handle} is ended once too often")));
    INVALID_ARGUMENT
}
