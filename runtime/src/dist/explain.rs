//! The exchanges of a call between its ranks, in words and bytes.

use std::fmt;

use oplus_dsl::Elem;
use oplus_dsl::ir::Program;
use oplus_dsl::shard::{Bytes, exchanged};

use super::plan::sharded;
use crate::{Error, Shapes};

/// The exchanges of a call between its ranks, in order: prints as text, or can be looked into.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanges {
    /// The axis along which the call is divided.
    pub axis: String,
    /// How many ranks there are.
    pub ranks: usize,
    /// How many programs a rank runs on its shard, one after the other.
    pub phases: usize,
    /// The messages, each of which is gathered by all ranks.
    pub messages: Vec<Message>,
}

/// A tensor that all ranks gather.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The phase after which it is gathered, from 0.
    pub phase: usize,
    /// The kind of value: a `total`, an element at the `border` of a shard, or the `end` of one.
    pub what: String,
    /// The element type that it stores.
    pub elem: Elem,
    /// Its axes and their sizes.
    pub axes: Vec<(String, usize)>,
    /// Bytes of one rank's part.
    pub bytes: u64,
}

impl Exchanges {
    /// The exchanges for the outputs of a program that are wanted.
    pub(crate) fn of(program: &Program, shapes: &Shapes, wanted: &[bool]) -> Result<Option<Exchanges>, Error> {
        let Some((axis, ranks)) = &shapes.sharded else { return Ok(None) };
        let plan = sharded(program, axis, wanted)?;
        let size = |name: &str| shapes.axes.iter().find(|(axis, _)| axis == name).map_or(0, |(_, size)| *size);
        let messages = exchanged(&plan, shapes.elem, size).into_iter().map(Message::of).collect();
        Ok(Some(Exchanges { axis: axis.clone(), ranks: *ranks, phases: plan.phases.len(), messages }))
    }

    /// Bytes of all messages of one rank.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.bytes).sum()
    }
}

impl Message {
    fn of(bytes: Bytes) -> Message {
        let Bytes { phase, message, elem, axes, bytes } = bytes;
        let name = message.strip_prefix("shard.").unwrap_or(&message);
        let (kind, field) = name.split_once('.').unwrap_or((name, ""));
        let what = format!("{} {field}", kind.trim_end_matches(|c: char| c.is_ascii_digit())).trim().to_owned();
        Message { phase, what, elem, axes, bytes }
    }
}

impl fmt::Display for Exchanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exchanges { axis, ranks, phases, .. } = self;
        writeln!(f, "divided along {axis} over {ranks} ranks, in {phases} phases")?;
        for phase in 0..self.phases {
            let mut sent = self.messages.iter().filter(|message| message.phase == phase).peekable();
            if sent.peek().is_none() {
                continue;
            }
            let bytes: u64 = sent.clone().map(|message| message.bytes).sum();
            let received = bytes * (self.ranks as u64).saturating_sub(1);
            writeln!(f, "  after phase {}, every rank sends {bytes} bytes and receives {received}:", phase + 1)?;
            sent.try_for_each(|message| writeln!(f, "    {message}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        write!(f, "{}: {}[{}], {} bytes", self.what, self.elem, axes.join(", "), self.bytes)
    }
}
