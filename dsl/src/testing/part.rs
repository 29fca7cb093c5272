//! Parts of a sequence.

/// A part of a sequence, as calls are given it.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Some times together, through the kernel of the whole.
    Chunk(usize),
    /// A single time, through the kernel of one step.
    Step,
}

impl Part {
    /// How many times it has.
    pub fn times(self) -> usize {
        if let Part::Chunk(times) = self { times } else { 1 }
    }

    /// Whether it is a single step.
    pub fn is_step(self) -> bool {
        matches!(self, Part::Step)
    }
}
