//! Captures: streams whose operations become nodes of a graph.

use std::thread::ThreadId;

use crate::graph::{Graph, Node};
use crate::state::{MODE, State};
use crate::work::Work;
use crate::{Code, error};

/// A capture in progress.
pub(crate) struct Capture {
    pub(crate) graph: u64,
    origin: u64,
    /// 0 forbids unsafe calls in all threads, 1 in its own, 2 in none.
    mode: u32,
    thread: ThreadId,
    pub(crate) invalid: bool,
}

impl State {
    /// Begins a capture.
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32) -> Result<(), Code> {
        if stream == 0 || self.stream(stream)?.capture.is_some() {
            return Err(error::CAPTURE_UNSUPPORTED);
        }
        let (id, graph) = (self.handle(), self.handle());
        let capture = Capture { graph, origin: stream, mode, thread: std::thread::current().id(), invalid: false };
        self.captures.insert(id, capture);
        self.graphs.insert(graph, Graph::default());
        self.stream(stream)?.capture = Some((id, vec![]));
        Ok(())
    }

    /// Ends a capture; gives its graph.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Result<u64, Code> {
        let Some((id, last)) = self.stream(stream)?.capture.clone() else { return Err(error::INVALID_VALUE) };
        let Some(capture) = self.captures.remove(&id) else { return Err(error::INVALID_VALUE) };
        let graph = &self.graphs[&capture.graph];
        let joined = graph.before(&last);
        let members = self.streams.values_mut().filter(|s| s.capture.as_ref().is_some_and(|(of, _)| *of == id));
        let mut unjoined = false;
        for member in members {
            let (_, heads) = member.capture.take().unwrap_or_default();
            unjoined |= heads.iter().any(|node| !joined.contains(node));
        }
        if unjoined {
            self.find("a stream that has been drawn into the capture was not joined".into());
        }
        if capture.invalid || unjoined {
            self.destroy_graph(capture.graph);
            return Err(if capture.invalid { error::CAPTURE_INVALIDATED } else { error::CAPTURE_UNJOINED });
        }
        debug_assert_eq!(State::key(capture.origin), State::key(stream), "another stream ends the capture");
        Ok(capture.graph)
    }

    /// Records an operation of a stream that is being captured.
    pub(crate) fn record(&mut self, stream: u64, work: Work) -> Result<(), Code> {
        let Some((id, deps)) = self.stream(stream)?.capture.clone() else { return Err(error::INVALID_VALUE) };
        let Some(capture) = self.captures.get(&id) else { return Err(error::INVALID_VALUE) };
        if capture.invalid {
            return Err(error::CAPTURE_INVALIDATED);
        }
        let Some(graph) = self.graphs.get_mut(&capture.graph) else { return Err(error::INVALID_VALUE) };
        graph.nodes.push(Node { work, deps });
        let node = graph.nodes.len() - 1;
        self.stream(stream)?.capture = Some((id, vec![node]));
        Ok(())
    }

    /// Makes a capture useless, as a call that it forbids does.
    pub(crate) fn invalidate(&mut self, id: u64, code: Code) -> Code {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.invalid = true;
        }
        self.find(format!("a capture becomes invalid (error {code})"));
        code
    }

    /// Refuses a call that waits for a stream which is being captured.
    pub(crate) fn must_not_capture(&mut self, stream: u64) -> Result<(), Code> {
        match self.stream(stream)?.capture {
            Some((id, _)) => Err(self.invalidate(id, error::CAPTURE_UNSUPPORTED)),
            None => Ok(()),
        }
    }

    /// Refuses a call that captures in strict modes forbid.
    pub(crate) fn unsafe_call(&mut self) -> Result<(), Code> {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let forbids = |capture: &Capture| match (mode, capture.mode) {
            (2, _) | (_, 2) => false,
            (0, 0) => true,
            _ => capture.thread == thread,
        };
        let forbidden = self.captures.iter().find(|(_, capture)| forbids(capture)).map(|(id, _)| *id);
        forbidden.map_or(Ok(()), |id| Err(self.invalidate(id, error::CAPTURE_UNSUPPORTED)))
    }

    /// Makes a stream wait for an event.
    pub(crate) fn wait(&mut self, stream: u64, event: u64) -> Result<(), Code> {
        let Some(event) = self.events.get(&event) else { return Err(error::INVALID_HANDLE) };
        let (clock, recorded) = (event.clock.clone(), event.capture.clone());
        let own = self.stream(stream)?.capture.clone();
        match (own, recorded) {
            (None, None) => self.stream(stream)?.clock.join(&clock),
            (Some((id, _)), None) => return Err(self.invalidate(id, error::CAPTURE_ISOLATION)),
            (Some((id, _)), Some((other, _))) if id != other => return Err(self.invalidate(id, error::CAPTURE_MERGE)),
            (_, Some((id, _))) if !self.captures.contains_key(&id) => return Err(error::CAPTURE_ISOLATION),
            (own, Some((id, nodes))) => {
                let mut deps = own.map_or(vec![], |(_, deps)| deps);
                deps.extend(nodes);
                deps.sort_unstable();
                deps.dedup();
                self.stream(stream)?.capture = Some((id, deps));
            }
        }
        Ok(())
    }
}
