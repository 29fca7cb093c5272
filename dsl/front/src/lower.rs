//! The surface tree to programs: names, types and axes.
//!
//! An expression becomes a [`Term`] on the way: a literal that has no type yet, a value of the program, a tuple, or the
//! state of a scan. What is wrong becomes [`Term::Wrong`] and stays silent from there on, so that one mistake is
//! reported once. [`oplus_dsl::build::Builder`] infers types and axes and knows the rules; this module says what to
//! write instead, on the token that is wrong.

mod along;
mod arguments;
mod call;
mod domain;
mod explain;
mod expr;
mod kernel;
mod laws;
mod number;
mod operator;
mod scope;
mod segments;
mod state;
mod term;
mod transition;

use std::collections::HashMap;
use std::rc::Rc;

use oplus_dsl::Ty;
use oplus_dsl::build::{Builder, Built};
use oplus_dsl::ir::{Axis, AxisSet, Operator, Program, Value};
use oplus_dsl::laws::Evidence;

use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::library::Library;
use crate::mistake::Mistake;
use crate::names;
use crate::syntax::{Block, HelperItem};
use scope::Scope;
use term::Term;

/// Steps that one kernel or operator may take: far more than any real one, and an end to helpers that call each other
/// in a widening tree.
const STEPS: u32 = 100_000;

/// How deep expressions of helper functions may nest when they are inlined.
const DEPTH: u32 = 300;

/// The operators and programs of a block.
pub(crate) struct Lowered {
    /// Each operator for f64, in the block's order; `None` if it has a mistake.
    pub(crate) operators: Vec<Option<Declared>>,
    /// Each kernel's program, in the block's order; `None` if it has a mistake.
    pub(crate) kernels: Vec<Option<Program>>,
}

/// An operator as it is declared, f64 where a field has no type.
pub(crate) enum Declared {
    /// An associative one, and how it was found to keep its laws.
    Associative(Operator, Evidence),
    /// The recurrence of one with a state of its own.
    Transition(Program),
}

/// Lowers a block; all mistakes are reported.
pub(crate) fn lower(block: &Block, mistakes: &mut Diagnostics) -> Lowered {
    names::check(block, mistakes);
    let library = Library::new(block);
    let operators = block.operators.iter().map(|item| operator::declared(item, &library, mistakes)).collect();
    let kernels = block.kernels.iter().map(|item| kernel::kernel(item, &library, mistakes)).collect();
    call::check_helpers(&library, mistakes);
    Lowered { operators, kernels }
}

/// The kind of definition whose formulas are lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A kernel.
    Kernel,
    /// A helper function by itself, where axes are not known.
    Helper,
    /// The combination of two states, or a condition on one.
    Combine,
    /// One step of a state.
    Step,
}

/// One kernel, or one body of an operator, on its way.
struct Lower<'a> {
    builder: Builder,
    library: &'a Library,
    /// The helper functions in sight.
    helpers: Rc<[HelperItem]>,
    mistakes: &'a mut Diagnostics,
    /// Names in sight.
    scope: Scope,
    /// Helper functions that are being inlined.
    inlining: Vec<String>,
    /// For the fields of scans, the axis and the value before the first element: what `last` gives for size 0.
    before: HashMap<Value, (Axis, Value)>,
    /// The type of a literal that meets no typed operand.
    lone: Ty,
    /// The kernel's or the operator's name.
    name: &'a str,
    place: Place,
    depth: u32,
    steps: u32,
}

impl<'a> Lower<'a> {
    fn new(builder: Builder, name: &'a str, lone: Ty, library: &'a Library, mistakes: &'a mut Diagnostics) -> Self {
        Lower {
            builder,
            library,
            helpers: library.helpers.clone(),
            mistakes,
            scope: Scope::default(),
            inlining: vec![],
            before: HashMap::new(),
            lone,
            name,
            place: Place::Kernel,
            depth: 0,
            steps: 0,
        }
    }

    fn report(&mut self, extent: Extent, mistake: Mistake) {
        self.mistakes.report(extent, mistake);
    }

    /// Reports a mistake in place of a term.
    fn wrong(&mut self, extent: Extent, mistake: Mistake) -> Term {
        self.report(extent, mistake);
        Term::Wrong
    }

    /// The value that the builder gives, or the mistake that it found.
    fn built(&mut self, built: Built, extent: Extent) -> Option<Value> {
        built.map_err(|error| self.report(extent, explain::mistake(&error))).ok()
    }

    /// Whether there is room for one more step; reports it when there is not.
    fn step(&mut self, extent: Extent) -> bool {
        self.steps += 1;
        if self.steps == STEPS {
            self.report(extent, Mistake::TooLarge { name: self.name.to_owned() });
        }
        self.steps < STEPS
    }

    fn ty(&self, value: Value) -> Ty {
        self.builder.ty(value).unwrap_or(self.lone)
    }

    fn axes(&self, value: Value) -> AxisSet {
        self.builder.axes_of(value).unwrap_or_default()
    }

    /// Axes as a sentence names them.
    fn axes_in_words(&self, axes: AxisSet) -> String {
        let program = self.builder.program();
        match axes.len() {
            0 => "no axes".into(),
            1 => format!("only {}", crate::suggest::listed(axes.iter().map(|axis| program.axis_name(axis)))),
            _ => crate::suggest::listed(axes.iter().map(|axis| program.axis_name(axis))),
        }
    }
}
