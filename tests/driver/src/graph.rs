//! Graphs, what is made of them, and the objects that they keep.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;

use crate::clock::Clock;
use crate::state::{Callback, State};
use crate::work::{Effect, Work};
use crate::{Code, error};

/// An operation and those that it waits for.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    pub(crate) deps: Vec<usize>,
}

/// The work that a capture has recorded.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    objects: Vec<u64>,
}

/// A graph that can be launched.
pub(crate) struct Exec {
    graph: u64,
    nodes: Arc<[Node]>,
    objects: Vec<u64>,
    /// Whether memory that is still there is freed at the next launch.
    frees: bool,
    /// The end of its last launch: launches of one executable follow each other.
    clock: Clock,
}

/// Something that graphs keep alive.
pub(crate) struct Object {
    pub(crate) references: u64,
    pub(crate) argument: u64,
    pub(crate) destroy: extern "C" fn(*mut c_void),
}

impl Graph {
    /// The nodes and everything that they wait for.
    pub(crate) fn before(&self, nodes: &[usize]) -> BTreeSet<usize> {
        let (mut found, mut open) = (BTreeSet::new(), nodes.to_vec());
        while let Some(node) = open.pop() {
            if found.insert(node) {
                open.extend(&self.nodes[node].deps);
            }
        }
        found
    }
}

fn allocates(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| matches!(node.work.effect, Effect::Begin(_)))
}

impl State {
    /// Makes a graph ready to be launched.
    pub(crate) fn instantiate(&mut self, handle: u64, flags: u64) -> Result<u64, Code> {
        let Some(graph) = self.graphs.get(&handle) else { return Err(error::INVALID_HANDLE) };
        let (nodes, objects): (Arc<[Node]>, _) = (graph.nodes.clone().into(), graph.objects.clone());
        if allocates(&nodes) && self.execs.values().any(|exec| exec.graph == handle) {
            return Err(error::INVALID_VALUE);
        }
        for object in &objects {
            self.retain(*object, 1)?;
        }
        let exec = self.handle();
        self.execs.insert(exec, Exec { graph: handle, nodes, objects, frees: flags & 1 == 1, clock: Clock::default() });
        Ok(exec)
    }

    /// Launches a graph.
    pub(crate) fn launch_graph(&mut self, handle: u64, stream: u64) -> Result<(), Code> {
        self.must_not_capture(stream)?;
        let (mut start, _) = self.tick(stream)?;
        let Some(exec) = self.execs.get(&handle) else { return Err(error::INVALID_HANDLE) };
        start.join(&exec.clock);
        let (nodes, frees) = (exec.nodes.clone(), exec.frees);
        let mut clocks: Vec<Clock> = vec![];
        for node in nodes.iter() {
            let mut clock = start.clone();
            node.deps.iter().for_each(|dep| clock.join(&clocks[*dep]));
            let lane = self.lane();
            let stamp = clock.advance(lane);
            if let Effect::Begin(address) = node.work.effect
                && frees
                && self.allocations.get(&address).is_some_and(crate::memory::Allocation::is_live)
            {
                self.free(address, &clock)?;
            }
            self.perform(&node.work, &clock, stamp)?;
            clocks.push(clock);
        }
        clocks.iter().for_each(|clock| start.join(clock));
        self.stream(stream)?.clock.join(&start);
        if let Some(exec) = self.execs.get_mut(&handle) {
            exec.clock = start;
        }
        Ok(())
    }

    /// Destroys a graph; what has been made of it lives on.
    pub(crate) fn destroy_graph(&mut self, handle: u64) {
        let objects = self.graphs.remove(&handle).map(|graph| graph.objects).unwrap_or_default();
        objects.into_iter().for_each(|object| self.release(object, 1));
    }

    /// Destroys what has been made of a graph.
    pub(crate) fn destroy_exec(&mut self, handle: u64) -> Result<(), Code> {
        let Some(exec) = self.execs.remove(&handle) else { return Err(error::INVALID_HANDLE) };
        // Its objects are released when it has run to its end.
        self.host.join(&exec.clock);
        exec.objects.into_iter().for_each(|object| self.release(object, 1));
        Ok(())
    }

    /// Lets a graph keep an object; the caller's reference moves to it if it says so.
    pub(crate) fn keep(&mut self, graph: u64, object: u64, count: u64, moves: bool) -> Result<(), Code> {
        if !moves {
            self.retain(object, count)?;
        }
        let Some(graph) = self.graphs.get_mut(&graph) else { return Err(error::INVALID_HANDLE) };
        graph.objects.extend(std::iter::repeat_n(object, count as usize));
        Ok(())
    }

    fn retain(&mut self, object: u64, count: u64) -> Result<(), Code> {
        let object = self.objects.get_mut(&object).ok_or(error::INVALID_HANDLE)?;
        object.references += count;
        Ok(())
    }

    /// Gives references up; with the last one the object's destructor is called.
    pub(crate) fn release(&mut self, handle: u64, count: u64) {
        let Some(object) = self.objects.get_mut(&handle) else {
            return self.find(format!("user object {handle:#x} is released once too often"));
        };
        object.references = object.references.saturating_sub(count);
        if object.references == 0
            && let Some(object) = self.objects.remove(&handle)
        {
            self.callbacks.push(Callback { function: object.destroy, argument: object.argument });
        }
    }
}
