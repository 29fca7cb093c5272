//! Names and indices of equations.

use std::collections::HashSet;

use crate::ir::{Axis, AxisSet, Op, Program, Value};

use super::expression::Environment;

/// An index along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// t + d.
    Step(i64),
    /// d.
    First(i64),
    /// n + d.
    End(i64),
}

impl Index {
    /// The index d further on.
    pub(super) fn moved(self, d: i64) -> Index {
        match self {
            Index::Step(at) => Index::Step(at.saturating_add(d)),
            Index::First(at) => Index::First(at.saturating_add(d)),
            Index::End(at) => Index::End(at.saturating_add(d)),
        }
    }
}

/// The names taken, and how axes are written.
#[derive(Clone, Debug)]
pub(super) struct Names {
    taken: HashSet<String>,
    /// Axes that something runs along.
    walked: AxisSet,
    axes: Vec<String>,
}

impl Names {
    /// The names of a program.
    pub(super) fn of(program: &Program) -> Names {
        let params = program.params.iter().map(|p| p.name.as_str());
        let outputs = program.outputs.iter().map(|o| o.name.as_str());
        let taken = params.chain(outputs).map(display_name).collect();
        let walks = |op: &Op| if program.renaming(op).is_some() { None } else { walked_axis(op) };
        let walked = program.nodes.iter().enumerate();
        let walked = walked.filter(|(i, node)| !matches!(node.op, Op::Index(_)) || is_read(program, Value(*i as u32)));
        let walked = walked.filter_map(|(_, node)| walks(&node.op)).collect();
        Names { taken, walked, axes: program.axes.clone() }
    }

    /// A name that is not taken yet: the first of those wanted that is free, or the last one with a number.
    pub(super) fn fresh(&mut self, wanted: &[&str]) -> String {
        let wanted = wanted.iter().map(|name| display_name(name));
        let last = wanted.clone().next_back().unwrap_or_default();
        let numbered = (2..).map(|number| format!("{last}{}", digits(number, SUBSCRIPTS)));
        let free = wanted.chain(numbered).find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.insert(free.clone());
        free
    }

    /// A name with the indices of those axes that something runs along.
    pub(super) fn indexed(&self, name: &str, axes: AxisSet, at: &Environment) -> String {
        let shown = axes.iter().filter(|axis| self.walked.contains(*axis));
        let indices: Vec<String> = shown.map(|axis| self.index(axis, at.index(axis))).collect();
        if indices.is_empty() { name.to_owned() } else { format!("{name}[{}]", indices.join(", ")) }
    }

    /// An index in writing.
    pub(super) fn index(&self, axis: Axis, index: Index) -> String {
        let (base, d) = match index {
            Index::Step(d) => (self.variable(axis), d),
            Index::First(d) => (String::new(), d),
            Index::End(d) => (self.size(axis), d),
        };
        match d {
            0 if base.is_empty() => "0".to_owned(),
            0 => base,
            d if d < 0 => format!("{base}−{}", d.unsigned_abs()),
            d if base.is_empty() => d.to_string(),
            d => format!("{base}+{d}"),
        }
    }

    /// The variable that runs along an axis.
    pub(super) fn variable(&self, axis: Axis) -> String {
        if self.walked.len() <= 1 { "t".to_owned() } else { self.axes[axis.0 as usize].to_lowercase() }
    }

    /// The size of an axis.
    pub(super) fn size(&self, axis: Axis) -> String {
        let only = self.walked.len() == 1 && self.walked.contains(axis);
        if only { "n".to_owned() } else { format!("|{}|", self.axes[axis.0 as usize]) }
    }

    /// The name of an axis.
    pub(super) fn axis(&self, axis: Axis) -> &str {
        &self.axes[axis.0 as usize]
    }
}

/// Whether anything but another name for an axis depends on a value.
fn is_read(program: &Program, value: Value) -> bool {
    let reads = |op: &Op| op.operands().contains(&value) && program.renaming(op).is_none();
    program.nodes.iter().any(|node| reads(&node.op)) || program.outputs.iter().any(|output| output.value == value)
}

/// The axis that an operation makes indices of interest along.
fn walked_axis(op: &Op) -> Option<Axis> {
    match op {
        Op::Scan { axis, .. } | Op::Last { axis, .. } | Op::First { axis, .. } => Some(*axis),
        Op::Shift { axis, .. } | Op::Starts { axis, .. } | Op::Index(axis) => Some(*axis),
        Op::MatrixScan(scan) => Some(scan.axis),
        Op::Gather { axis, .. } => Some(*axis),
        _ => None,
    }
}

/// A name with its suffixes `.bar` and `.dot` as marks over the first letter.
pub(super) fn display_name(name: &str) -> String {
    let (mut stem, mut marks) = (name, vec![]);
    while let Some((rest, mark)) = strip_mark(stem) {
        stem = rest;
        marks.push(mark);
    }
    let mut letters = stem.chars();
    let first: String = letters.next().into_iter().chain(marks.into_iter().rev()).collect();
    first + letters.as_str()
}

fn strip_mark(name: &str) -> Option<(&str, char)> {
    let macron = name.strip_suffix(".bar").map(|stem| (stem, '\u{304}'));
    macron.or_else(|| name.strip_suffix(".dot").map(|stem| (stem, '\u{307}')))
}

/// The ten subscript digits.
const SUBSCRIPTS: [char; 10] = ['₀', '₁', '₂', '₃', '₄', '₅', '₆', '₇', '₈', '₉'];
/// The ten superscript digits.
const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// An exponent.
pub(super) fn superscript(n: i32) -> String {
    let sign = if n < 0 { "⁻" } else { "" };
    format!("{sign}{}", digits(n.unsigned_abs(), SUPERSCRIPTS))
}

fn digits(n: u32, alphabet: [char; 10]) -> String {
    n.to_string().bytes().map(|digit| alphabet[usize::from(digit - b'0')]).collect()
}
