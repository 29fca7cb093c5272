//! The declarations of a text as data, from which a binding makes functions of another language.

use std::fmt;

use oplus_dsl::Elem;
use oplus_dsl::ir::{self, Literal, Program};
use oplus_dsl::step::State;

/// An item of a text. Helper functions are none: they are inlined into the kernels that call them.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `op Name(fields) { … }`.
    Operator(Box<Operator>),
    /// `fn name(parameters) -> (outputs) { … }`.
    Kernel(Box<Kernel>),
}

impl Item {
    /// The item's name.
    pub fn name(&self) -> &str {
        match self {
            Item::Operator(operator) => &operator.name,
            Item::Kernel(kernel) => &kernel.name,
        }
    }

    /// The item's documentation.
    pub fn docs(&self) -> &Docs {
        match self {
            Item::Operator(operator) => &operator.docs,
            Item::Kernel(kernel) => &kernel.docs,
        }
    }

    /// The kernel, if the item is one.
    pub fn kernel(&self) -> Option<&Kernel> {
        if let Item::Kernel(kernel) = self { Some(kernel) } else { None }
    }
}

/// Documentation of an item, in Markdown. It is displayed as rustdoc shows it: what is written, then what is derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Docs {
    /// The doc comments of the text.
    pub written: String,
    /// The sections that follow from the item: equations and gradient of a kernel, combination and laws of an operator.
    pub derived: String,
}

impl fmt::Display for Docs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.written.is_empty() || self.derived.is_empty() { "" } else { "\n\n" };
        write!(f, "{}{between}{}", self.written, self.derived)
    }
}

/// An operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// The name.
    pub name: String,
    /// The documentation.
    pub docs: Docs,
    /// Whether it is declared `pub`.
    pub is_public: bool,
    /// Its meaning; fields without a type are `f64` here.
    pub meaning: Meaning,
}

/// The meaning of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// It combines two states.
    Associative(ir::Operator),
    /// Its elements act on a state of its own, by the recurrence of this program.
    Transition(Program),
}

/// A kernel: its signature, and its program.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The name.
    pub name: String,
    /// The documentation.
    pub docs: Docs,
    /// Whether it is declared `pub`.
    pub is_public: bool,
    /// The tensors that a caller gives, in the order of the program's parameters.
    pub params: Vec<Param>,
    /// The tensors that a caller receives, in the order of the program's outputs.
    pub outputs: Vec<Output>,
    /// The program, of which a kernel is made.
    pub program: Program,
    /// Whether there is a gradient, or why not. There is one for each parameter that stores floats.
    pub gradient: Result<(), String>,
    /// The one-step form for decoding, or why there is none.
    pub step: Result<Box<Step>, String>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The name.
    pub name: String,
    /// Its documentation for callers, in one paragraph of Markdown.
    pub docs: String,
    /// The names of the axes, in memory order, last fastest.
    pub axes: Vec<String>,
    /// The element type that it stores.
    pub elem: Elem,
    /// The element type that it may store instead.
    pub or: Option<Elem>,
    /// The value everywhere of a parameter that is left out; one without must be given.
    pub default: Option<Literal>,
    /// For a state, the output that is this parameter of the next chunk or step.
    pub state: Option<String>,
    /// Whether the kernel's gradient has one for this parameter.
    pub has_gradient: bool,
}

/// An output of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The name.
    pub name: String,
    /// Its documentation for callers, in one paragraph of Markdown.
    pub docs: String,
    /// The names of the axes, in memory order, last fastest.
    pub axes: Vec<String>,
    /// The element type that it stores.
    pub elem: Elem,
    /// For a state, the parameter of the next chunk or step that this output is.
    pub state: Option<String>,
    /// Whether the kernel's gradient takes a cotangent of this output.
    pub has_cotangent: bool,
}

/// The one-step form of a kernel: the same for one index of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The kernel of one step, named `step`. Its parameters and outputs are those of the whole one, without the axis.
    pub kernel: Kernel,
    /// The axis that is gone.
    pub axis: String,
    /// The states that one step hands to the next.
    pub states: Vec<State>,
}
