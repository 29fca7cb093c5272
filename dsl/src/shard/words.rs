//! How much is exchanged.

use crate::elem::Elem;

use super::Sharded;

/// Bytes that every rank sends between two phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The phase after which they are sent.
    pub phase: usize,
    /// The message.
    pub message: String,
    /// The type that it stores.
    pub elem: Elem,
    /// Its axes and their sizes.
    pub axes: Vec<(String, usize)>,
    /// Bytes of one rank's message.
    pub bytes: u64,
}

/// The messages of a rank in calls of an element type, where `size` says how large an axis is.
pub fn exchanged(sharded: &Sharded, elem: Elem, size: impl Fn(&str) -> usize) -> Vec<Bytes> {
    let mut all = vec![];
    for (phase, at) in sharded.phases.iter().enumerate() {
        let Some(program) = &at.program else { continue };
        for output in program.outputs.iter().filter(|output| at.messages.contains(&output.name)) {
            let names = output.axes.iter().map(|axis| program.axis_name(*axis));
            let axes: Vec<(String, usize)> = names.map(|name| (name.to_owned(), size(name))).collect();
            let elem = output.elem.in_call(elem);
            let elements: u64 = axes.iter().map(|(_, size)| *size as u64).product();
            let bytes = elements * elem.bytes().unwrap_or(0) as u64;
            all.push(Bytes { phase, message: output.name.clone(), elem, axes, bytes });
        }
    }
    all
}
