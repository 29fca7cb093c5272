//! Running a divided program: phases, and exchanges between them.

use std::collections::HashMap;
use std::ops::Range;

use oplus_dsl::Elem;
use oplus_dsl::ir::Program;
use oplus_dsl::shard::{END, Pick, Ranks, SIZE, START, Which};

use super::Group;
use super::plan::{Fold, Phase, Plan};
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
    pub(super) sinks: &'a [Sink<'a>],
    /// Tensors by name: the inputs, what was folded and picked, and the outputs.
    pub(super) tensors: HashMap<String, Tensor>,
    /// Gathered messages, with one more axis in front.
    pub(super) gathered: HashMap<String, Tensor>,
}

impl Run<'_> {
    /// All phases. The tensors of the outputs, `None` for those that are not wanted.
    pub(super) fn all(mut self, plan: &Plan) -> Result<Vec<Option<Tensor>>, Error> {
        self.positions(plan)?;
        for phase in &plan.phases {
            self.receive(phase)?;
            if let Some(executable) = &phase.program {
                self.phase(executable, &phase.messages)?;
            }
        }
        self.fill_empty_shards()?;
        let outputs = self.program.outputs.iter().zip(self.sinks);
        let output = outputs.map(|(output, sink)| match sink {
            Sink::Skip => None,
            Sink::New | Sink::Into(_) => self.tensors.remove(&format!("{OUTPUT}{}", output.name)),
        });
        Ok(output.collect())
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
        let device = self.binding.home.map_or(Device::Cpu, Storage::device);
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
        for (name, tensor) in self.run(&fold.executable, &sinks)? {
            self.tensors.insert(name, tensor);
        }
        Ok(())
    }

    fn phase(&mut self, executable: &Executable, messages: &[String]) -> Result<(), Error> {
        let own = |name: &str| self.program.outputs.iter().position(|output| output.name == name);
        let sink = |name: &str| own(name).map_or(Sink::New, |k| self.sinks[k]);
        let sinks: Vec<Sink<'_>> = executable.program.outputs.iter().map(|output| sink(&output.name)).collect();
        let (sent, own): (Vec<_>, Vec<_>) =
            self.run(executable, &sinks)?.into_iter().partition(|(name, _)| messages.contains(name));
        let tensors: Vec<&Tensor> = sent.iter().map(|(_, tensor)| tensor).collect();
        let gathered = if tensors.is_empty() { vec![] } else { self.group.all_gather_many(&tensors)? };
        self.gathered.extend(sent.iter().map(|(name, _)| name.clone()).zip(gathered));
        self.tensors.extend(own.into_iter().map(|(name, tensor)| (format!("{OUTPUT}{name}"), tensor)));
        Ok(())
    }

    /// Runs a program with tensors of these names.
    fn run(&self, executable: &Executable, sinks: &[Sink<'_>]) -> Result<Vec<(String, Tensor)>, Error> {
        let program = &executable.program;
        let inputs: Vec<Option<&Tensor>> = program.params.iter().map(|param| self.tensors.get(&param.name)).collect();
        let size = |name: &String| self.program.axis(name).map(|axis| self.binding.sizes[axis.0 as usize]);
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

/// What the names of outputs begin with among the tensors of a call, as an output may be named like a parameter.
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
