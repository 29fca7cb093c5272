//! Everything that the driver knows, and the door through which every call goes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::capture::Capture;
use crate::clock::{Clock, Lane};
use crate::graph::{Exec, Graph, Object};
use crate::memory::Allocation;
use crate::ptx::Kernel;
use crate::{Code, error};

/// The state of the driver.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) calls: u64,
    /// The call that fails, and how.
    fail: Option<(u64, Option<Code>)>,
    /// Launches that may begin before the one ahead of them has ended.
    pub(crate) early_launches: u64,
    /// Whether calls are not counted and do not fail.
    pub(crate) paused: bool,
    /// The name of the call that has failed.
    pub(crate) failed: Option<&'static str>,
    /// The error that has made the context unusable.
    pub(crate) dead: Option<Code>,
    pub(crate) findings: Vec<String>,
    /// The memory that could not be freed because the call for it failed.
    pub(crate) excused: BTreeSet<u64>,
    /// The work that the host has waited for.
    pub(crate) host: Clock,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<u64, Graph>,
    pub(crate) execs: BTreeMap<u64, Exec>,
    pub(crate) objects: BTreeMap<u64, Object>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) pools: BTreeMap<u64, u64>,
    pub(crate) modules: BTreeMap<u64, Kernel>,
    /// Destructors to be called when the state is unlocked.
    pub(crate) callbacks: Vec<Callback>,
    last_handle: u64,
    last_lane: u64,
}

/// A stream.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) lane: Option<Lane>,
    pub(crate) clock: Clock,
    /// The capture that it takes part in, and the nodes that its next one depends on.
    pub(crate) capture: Option<(u64, Vec<usize>)>,
}

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    pub(crate) clock: Clock,
    /// The capture in which it was recorded, and the nodes.
    pub(crate) capture: Option<(u64, Vec<usize>)>,
}

/// A context.
pub(crate) struct Context {
    pub(crate) primary: bool,
    pub(crate) references: u64,
}

/// A destructor of a user object.
pub(crate) struct Callback {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) argument: u64,
}

/// The handles of streams that are always there: the default stream and that of the thread.
const DEFAULT_STREAM: u64 = 0;
const PER_THREAD_STREAM: u64 = 2;

static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    /// The context of the thread.
    pub(crate) static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// The mode of the thread for calls that captures forbid: 0 global, 1 its own, 2 relaxed.
    pub(crate) static MODE: Cell<u32> = const { Cell::new(0) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static NAME: RefCell<&'static str> = const { RefCell::new("") };
}

/// Runs one call of the driver. `subject` is what the call frees or destroys, if anything.
pub(crate) fn call(name: &'static str, subject: u64, f: impl FnOnce(&mut State) -> Result<(), Code>) -> Code {
    NAME.set(name);
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let state = guard.get_or_insert_with(State::from_environment);
    state.calls += u64::from(!state.paused);
    if IN_CALLBACK.get() {
        state.find("a destructor of a user object calls the driver".into());
    }
    let result = match state.injected(name, subject) {
        Some(code) => Err(code),
        None => f(state),
    };
    let callbacks = std::mem::take(&mut state.callbacks);
    drop(guard);
    IN_CALLBACK.set(true);
    callbacks.into_iter().for_each(|callback| (callback.function)(callback.argument as *mut c_void));
    IN_CALLBACK.set(false);
    result.err().unwrap_or(0)
}

/// Looks at the state, outside any call of the driver.
pub(crate) fn look<R>(f: impl FnOnce(&mut State) -> R) -> R {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    f(guard.get_or_insert_with(State::from_environment))
}

impl State {
    fn from_environment() -> State {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let code = number("OPLUS_TEST_DRIVER_ERROR").map(|code| code as Code);
        let fail = number("OPLUS_TEST_DRIVER_FAIL").map(|call| (call, code));
        State { fail, last_handle: 0x1000, ..State::default() }
    }

    /// The error of this call, if it is one that fails.
    fn injected(&mut self, name: &'static str, subject: u64) -> Option<Code> {
        let (call, code) = self.fail?;
        if call == self.calls && !self.paused {
            let memory = name.starts_with("cuMemAlloc");
            let code = code.unwrap_or(if memory { error::OUT_OF_MEMORY } else { error::UNKNOWN });
            self.failed = Some(name);
            self.excused.insert(subject);
            self.dead = (code == error::ILLEGAL_ADDRESS).then_some(code);
            return Some(code);
        }
        self.dead.filter(|_| !name.starts_with("cuGetError"))
    }

    /// Notes that something is wrong. After a fault of the context nothing can be in order.
    pub(crate) fn find(&mut self, what: String) {
        if self.dead.is_none() {
            self.findings.push(format!("call {}, {}: {what}", self.calls, NAME.with_borrow(|name| *name)));
        }
    }

    /// A handle that nothing else has.
    pub(crate) fn handle(&mut self) -> u64 {
        self.last_handle += 16;
        self.last_handle
    }

    /// A lane that nothing else has.
    pub(crate) fn lane(&mut self) -> Lane {
        self.last_lane += 1;
        Lane(self.last_lane)
    }

    /// The number under which a stream is kept: every thread has its own per-thread stream.
    pub(crate) fn key(handle: u64) -> u64 {
        thread_local!(static OWN: u8 = const { 0 });
        if handle == PER_THREAD_STREAM {
            OWN.with(|own| std::ptr::from_ref(own).addr() as u64 | 1 << 63)
        } else {
            handle
        }
    }

    /// The stream of a handle.
    pub(crate) fn stream(&mut self, handle: u64) -> Result<&mut Stream, Code> {
        let key = State::key(handle);
        let lane = self.lane();
        let implicit = handle == DEFAULT_STREAM || handle == PER_THREAD_STREAM;
        if implicit {
            self.streams.entry(key).or_default();
        }
        if !self.streams.contains_key(&key) {
            self.find(format!("there is no stream {handle:#x}"));
            return Err(error::INVALID_HANDLE);
        }
        let stream = self.streams.entry(key).or_default();
        stream.lane.get_or_insert(lane);
        Ok(stream)
    }

    /// The context of the thread.
    pub(crate) fn current(&mut self) -> Result<u64, Code> {
        let current = CURRENT.get();
        if current == 0 {
            self.find("the thread has no context".into());
            return Err(error::INVALID_CONTEXT);
        }
        Ok(current)
    }

    /// Everything that is still there and should not be.
    pub(crate) fn leaks(&self) -> Vec<String> {
        let kept = |handle: &u64| !self.excused.contains(handle);
        let mut leaks = vec![];
        let mut list = |what: &str, handles: Vec<&u64>| {
            leaks.extend(handles.into_iter().filter(|h| kept(h)).map(|h| format!("{what} {h:#x} is left")));
        };
        let implicit = |key: &u64| *key == DEFAULT_STREAM || *key >> 63 == 1;
        list("stream", self.streams.keys().filter(|key| !implicit(key)).collect());
        list("event", self.events.keys().collect());
        list("allocation", self.allocations.iter().filter(|(_, a)| a.is_live()).map(|(at, _)| at).collect());
        list("graph", self.graphs.keys().collect());
        list("executable graph", self.execs.keys().collect());
        list("user object", self.objects.keys().collect());
        list("context", self.contexts.iter().filter(|(_, c)| !c.primary).map(|(handle, _)| handle).collect());
        if MODE.get() != 0 {
            leaks.push("the thread's capture mode was not restored".into());
        }
        leaks
    }
}
