//! Running a divided program: phases, and exchanges between them.

use std::collections::HashMap;
use std::ops::Range;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Output, Program};
use oplus_dsl::shard::{END, Pick, Ranks, SEGMENTS, SIZE, START, Which};

use super::Group;
use super::plan::{Fold, Phase, Plan};
use super::segments::{Own, Segments, divided_axis};
use crate::bind::{Binding, Known};
use crate::execute::{Executable, Hand, Sink};
use crate::tensor::Storage;
use crate::{Device, Error, Tensor};

/// A call of a divided program on one rank.
pub(super) struct Run<'a> {
    pub(super) group: &'a Group,
    pub(super) axis: &'a str,
    pub(super) program: &'a Program,
    pub(super) binding: &'a Binding<'a>,
    /// The sizes of the shards of all ranks.
    pub(super) shards: &'a [usize],
    /// How this rank's shard is divided into segments.
    pub(super) segments: Segments,
    pub(super) sinks: &'a [Sink<'a>],
    /// Tensors by name: the inputs, what was folded and picked, and the outputs.
    pub(super) tensors: HashMap<String, Tensor>,
    /// Of a shard in segments: the messages of all segments, by name.
    pub(super) totals: Own,
    /// Gathered messages, with one more axis in front.
    pub(super) gathered: HashMap<String, Tensor>,
}

/// All phases of calls of one plan: each phase of all of them before the next, so that what one has sent is on its way while the others
/// compute.
pub(super) fn all(runs: &mut [Run<'_>], plan: &Plan) -> Result<(), Error> {
    runs.iter_mut().try_for_each(|run| run.positions(plan))?;
    for phase in &plan.phases {
        runs.iter_mut().try_for_each(|run| run.phase(phase))?;
    }
    runs.iter_mut().try_for_each(Run::fill_empty_shards)
}

impl Run<'_> {
    /// One phase.
    fn phase(&mut self, phase: &Phase) -> Result<(), Error> {
        self.receive(phase)?;
        let Some(executable) = &phase.program else { return Ok(()) };
        let outputs = match self.segments.count {
            1 => self.whole(executable)?,
            _ => self.in_segments(executable, phase)?,
        };
        self.send(outputs, &phase.messages)
    }

    /// The tensors of the outputs after all phases, `None` for those that are not wanted.
    pub(super) fn outputs(mut self) -> Vec<Option<Tensor>> {
        let outputs = self.program.outputs.iter().zip(self.sinks);
        let output = outputs.map(|(output, sink)| match sink {
            Sink::Skip => None,
            Sink::New | Sink::Into(_) => self.tensors.remove(&format!("{OUTPUT}{}", output.name)),
        });
        output.collect()
    }

    /// Gives outputs that are not divided to ranks whose shards are empty: a program over no elements computes nothing.
    fn fill_empty_shards(&mut self) -> Result<(), Error> {
        let Some(root) = self.shards.iter().position(|size| *size > 0).filter(|_| self.shards.contains(&0)) else {
            return Ok(());
        };
        let axis = self.program.axis(self.axis);
        for (output, sink) in self.program.outputs.iter().zip(self.sinks) {
            let name = format!("{OUTPUT}{}", output.name);
            let is_divided = output.axes.iter().any(|own| Some(*own) == axis);
            let Some(tensor) = self.tensors.get(&name).filter(|_| !is_divided) else { continue };
            let whole = self.group.broadcast(tensor, root)?;
            match sink {
                Sink::Into(target) => whole.write_to(target)?,
                Sink::New | Sink::Skip => drop(self.tensors.insert(name, whole)),
            }
        }
        Ok(())
    }

    /// Where the shard lies in the whole, as far as the programs ask.
    fn positions(&mut self, plan: &Plan) -> Result<(), Error> {
        let rank = self.group.rank();
        let start: usize = self.shards[..rank].iter().sum();
        let whole: usize = self.shards.iter().sum();
        let device = self.device();
        for (name, position) in [(START, start), (END, start + self.shards[rank]), (SIZE, whole)] {
            if !plan.asks(name) {
                continue;
            }
            self.tensors.insert(name.to_owned(), Tensor::full(position as i64, &[], &device)?);
        }
        Ok(())
    }

    /// Picks and folds what was gathered before a phase.
    fn receive(&mut self, phase: &Phase) -> Result<(), Error> {
        for pick in &phase.picks {
            let picked = self.picked(pick)?;
            self.tensors.insert(pick.param.clone(), picked);
        }
        for fold in &phase.folds {
            self.fold(fold)?;
        }
        Ok(())
    }

    fn picked(&self, pick: &Pick) -> Result<Tensor, Error> {
        let (rank, k) = chosen(pick.which, self.shards, self.group.rank());
        let message = &pick.messages[k.min(pick.messages.len() - 1)];
        self.gathered[message].select(0, rank)
    }

    fn fold(&mut self, fold: &Fold) -> Result<(), Error> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let ranks: Range<usize> = match fold.ranks {
            Ranks::Before => 0..rank,
            Ranks::After => rank + 1..size,
            Ranks::All => 0..size,
        };
        for name in &fold.gathered {
            let part = self.gathered[name].slice(0, ranks.clone())?;
            self.tensors.insert(name.clone(), part);
        }
        let sinks = vec![Sink::New; fold.executable.program.outputs.len()];
        for (name, tensor) in self.run(&fold.executable, &Own::new(), &sinks)? {
            self.tensors.insert(name, tensor);
        }
        Ok(())
    }

    /// Runs the program of a phase on the whole shard.
    fn whole(&self, executable: &Executable) -> Result<Vec<(String, Tensor)>, Error> {
        let outputs = executable.program.outputs.iter();
        let sinks: Vec<Sink<'_>> = outputs.map(|output| self.sink(&output.name)).collect();
        self.run(executable, &Own::new(), &sinks)
    }

    /// The use of an output of a phase: messages go to new tensors.
    fn sink(&self, name: &str) -> Sink<'_> {
        let own = self.program.outputs.iter().position(|output| output.name == name);
        own.map_or(Sink::New, |k| self.sinks[k])
    }

    /// Runs the program of a phase on all segments of the shard: after what gives each its states, before what combines their messages.
    fn in_segments(&mut self, executable: &Executable, phase: &Phase) -> Result<Vec<(String, Tensor)>, Error> {
        let program = &executable.program;
        let mut own = self.of_segments(program)?;
        for spread in &phase.spreads {
            own.extend(self.run(spread, &self.totals, &vec![Sink::New; spread.program.outputs.len()])?);
        }
        let mut wholes: HashMap<String, (Tensor, Tensor)> = HashMap::new();
        for output in &program.outputs {
            let Some(along) = divided_axis(program, &output.axes, self.axis) else { continue };
            if let Some(whole) = self.allocated(output)? {
                let divided = self.segments.divided(&whole, along)?;
                wholes.insert(output.name.clone(), (whole, divided));
            }
        }
        let sink = |output: &Output| match wholes.get(&output.name) {
            Some((_, divided)) => Sink::Into(divided),
            None => self.sink(&output.name),
        };
        let sinks: Vec<Sink<'_>> = program.outputs.iter().map(sink).collect();
        let (totals, mut outputs): (Vec<_>, Vec<_>) =
            self.run(executable, &own, &sinks)?.into_iter().partition(|(name, _)| self.program_lacks(name));
        outputs.iter_mut().for_each(|(name, tensor)| {
            if let Some((whole, _)) = wholes.remove(name) {
                *tensor = whole;
            }
        });
        self.totals.extend(totals);
        for join in &phase.joins {
            outputs.extend(self.run(join, &self.totals, &vec![Sink::New; join.program.outputs.len()])?);
        }
        Ok(outputs)
    }

    /// Whether the whole program has no output of that name.
    fn program_lacks(&self, name: &str) -> bool {
        self.program.outputs.iter().all(|output| output.name != name)
    }

    /// The whole tensor of an output of segments, if it is wanted.
    fn allocated(&self, output: &Output) -> Result<Option<Tensor>, Error> {
        let Some(own) = self.program.outputs.iter().find(|own| own.name == output.name) else { return Ok(None) };
        match self.sink(&output.name) {
            Sink::Skip => Ok(None),
            Sink::Into(tensor) => Ok(Some(tensor.clone())),
            Sink::New => self.binding.allocate(own, &self.device()).map(Some),
        }
    }

    /// The parameters that segments have of their own: parts of tensors, and where each lies in the whole.
    fn of_segments(&self, program: &Program) -> Result<Own, Error> {
        let mut own = Own::new();
        for param in &program.params {
            if let (Some(along), Some(tensor)) =
                (divided_axis(program, &param.axes, self.axis), self.tensors.get(&param.name))
            {
                own.insert(param.name.clone(), self.segments.divided(tensor, along)?);
            }
        }
        let start: usize = self.shards[..self.group.rank()].iter().sum();
        for (name, first) in [(START, 0), (END, 1)] {
            if program.param(name).is_some() {
                let at = |k: usize| (start + (k + first) * self.segments.each()) as i64;
                let positions: Vec<i64> = (0..self.segments.count).map(at).collect();
                let positions = Tensor::from_vec(positions, &[self.segments.count])?.to_device(&self.device())?;
                own.insert(name.to_owned(), positions);
            }
        }
        Ok(own)
    }

    fn device(&self) -> Device {
        self.binding.home.map_or(Device::Cpu, Storage::device)
    }

    /// Gathers the messages among the outputs of a phase, and keeps the others.
    fn send(&mut self, outputs: Vec<(String, Tensor)>, messages: &[String]) -> Result<(), Error> {
        let (mut sent, own): (Vec<_>, Vec<_>) = outputs.into_iter().partition(|(name, _)| messages.contains(name));
        // Ranks send in one order, whether or not their shards are in segments.
        sent.sort_by_key(|(name, _)| messages.iter().position(|message| message == name));
        let tensors: Vec<&Tensor> = sent.iter().map(|(_, tensor)| tensor).collect();
        let gathered = if tensors.is_empty() { vec![] } else { self.group.all_gather_many(&tensors)? };
        self.gathered.extend(sent.iter().map(|(name, _)| name.clone()).zip(gathered));
        self.tensors.extend(own.into_iter().map(|(name, tensor)| (format!("{OUTPUT}{name}"), tensor)));
        Ok(())
    }

    /// Runs a program with tensors of these names: `own` before others.
    fn run(&self, executable: &Executable, own: &Own, sinks: &[Sink<'_>]) -> Result<Vec<(String, Tensor)>, Error> {
        let program = &executable.program;
        let tensor = |name: &String| own.get(name).or_else(|| self.tensors.get(name));
        let inputs: Vec<Option<&Tensor>> = program.params.iter().map(|param| tensor(&param.name)).collect();
        let size = |name: &String| match name.as_str() {
            SEGMENTS => Some(self.segments.count),
            name if name == self.axis => Some(self.segments.each()),
            name => self.program.axis(name).map(|axis| self.binding.sizes[axis.0 as usize]),
        };
        let known =
            Known { sizes: program.axes.iter().map(size).collect(), elem: Some(self.elem()), home: self.binding.home };
        let ran = executable.run(&known, &inputs, sinks, Hand::Nothing);
        let outputs = ran.map_err(|error| naming_axis(error, &self.program.name, self.axis))?.outputs;
        let named = program.outputs.iter().zip(outputs);
        Ok(named.filter_map(|(output, tensor)| Some((output.name.clone(), tensor?))).collect())
    }

    fn elem(&self) -> Elem {
        self.binding.elem
    }
}

/// The error that a program of a shard or of a fold has no kernel names the command that makes those of the whole.
fn naming_axis(error: Error, program: &str, axis: &str) -> Error {
    let kernel = program.split(".bar").next().unwrap_or(program);
    match error {
        Error::NoKernel { key, .. } => {
            Error::NoKernel { key, command: format!("oplus bake --kernel {kernel} --sharded {axis}") }
        }
        other => other,
    }
}

/// The prefix of outputs' names among the tensors of a call, as an output may be named like a parameter.
const OUTPUT: &str = "output ";

/// The rank whose message is picked, and which of its messages.
fn chosen(which: Which, shards: &[usize], rank: usize) -> (usize, usize) {
    let is_there = |rank: &usize| shards[*rank] > 0;
    let start: usize = shards[..rank].iter().sum();
    match which {
        Which::Last => ((0..shards.len()).rfind(is_there).unwrap_or(0), 0),
        Which::First => ((0..shards.len()).find(is_there).unwrap_or(0), 0),
        Which::Before(by) => start.checked_sub(by as usize).map_or((0, 0), |at| {
            let (owner, offset) = place(shards, at);
            (owner, shards[owner] - 1 - offset)
        }),
        Which::After(by) => {
            let at = start + shards[rank] + by as usize;
            if at < shards.iter().sum() { place(shards, at) } else { (0, 0) }
        }
    }
}

/// The rank that holds an index of the whole axis, and where in its shard.
fn place(shards: &[usize], at: usize) -> (usize, usize) {
    let mut offset = at;
    for (rank, size) in shards.iter().enumerate() {
        if offset < *size {
            return (rank, offset);
        }
        offset -= size;
    }
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_kernel_of_a_shard_is_made_with_those_of_the_whole() {
        let missing =
            Error::NoKernel { key: "0123 of `ssd.bar.shard0`".into(), command: "oplus bake --kernel x".into() };
        let message = naming_axis(missing, "ssd.bar", "T").to_string();
        assert!(message.contains("0123 of `ssd.bar.shard0`"), "{message}");
        assert!(message.contains("oplus bake --kernel ssd --sharded T"), "{message}");
        assert_eq!(naming_axis(Error::NoRank { rank: 2, size: 2 }, "ssd", "T"), Error::NoRank { rank: 2, size: 2 });
    }
}
