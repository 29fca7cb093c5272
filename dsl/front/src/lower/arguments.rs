//! The arguments of a call, sorted: positional, flags and named ones.

use oplus_dsl::ir::Axis;

use super::{Lower, Place};
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::suggest::{counted, did_you_mean, listed};
use crate::syntax::{Argument, Expr, ExprKind, Name};

/// The arguments that a function takes beside its positional ones.
#[derive(Clone, Copy)]
pub(super) struct Signature<'a> {
    /// A call as the user should write it; its name up to the parenthesis.
    pub(super) usage: &'a str,
    /// How many positional arguments it takes.
    pub(super) positional: usize,
    /// Named arguments, `key = value`.
    pub(super) keys: &'static [&'static str],
    /// Words that stand alone.
    pub(super) flags: &'static [&'static str],
}

impl<'a> Signature<'a> {
    /// A function without named arguments and flags.
    pub(super) fn plain(usage: &'a str, positional: usize) -> Signature<'a> {
        Signature { usage, positional, keys: &[], flags: &[] }
    }

    /// The function's name.
    pub(super) fn function(&self) -> &'a str {
        self.usage.split('(').next().unwrap_or_default()
    }
}

/// Arguments of a call.
pub(super) struct Arguments<'e> {
    /// Arguments without a name; as many as the signature says.
    pub(super) positional: Vec<&'e Expr>,
    named: Vec<(&'e Name, &'e Expr)>,
    flags: Vec<&'e Name>,
}

impl<'e> Arguments<'e> {
    /// The value of a named argument.
    pub(super) fn key(&self, key: &str) -> Option<&'e Expr> {
        self.named.iter().find(|(name, _)| name.text == key).map(|(_, value)| *value)
    }

    /// The name of a named argument, where it stands.
    pub(super) fn key_extent(&self, key: &str) -> Option<Extent> {
        self.named.iter().find(|(name, _)| name.text == key).map(|(name, _)| name.extent())
    }

    /// Whether a flag is given.
    pub(super) fn flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|name| name.text == flag)
    }
}

impl Lower<'_> {
    /// Sorts arguments; `None` when the positional ones are not those of the signature.
    pub(super) fn arguments<'e>(
        &mut self,
        signature: Signature<'_>,
        list: &'e [Argument],
        extent: Extent,
    ) -> Option<Arguments<'e>> {
        let mut arguments = Arguments { positional: vec![], named: vec![], flags: vec![] };
        for argument in list {
            match (&argument.key, &argument.value.kind) {
                (Some(key), _) if signature.keys.contains(&key.text.as_str()) => {
                    if arguments.key(&key.text).is_some() {
                        self.report(key.extent(), Mistake::DuplicateArgument { argument: key.text.clone() });
                    }
                    arguments.named.push((key, &argument.value));
                }
                (Some(key), _) => self.unknown_argument(signature, key),
                (None, ExprKind::Name(name)) if signature.flags.contains(&name.text.as_str()) => {
                    if arguments.flag(&name.text) {
                        self.report(name.extent(), Mistake::DuplicateArgument { argument: name.text.clone() });
                    }
                    arguments.flags.push(name);
                }
                (None, _) => arguments.positional.push(&argument.value),
            }
        }
        let given = arguments.positional.len();
        if given == signature.positional {
            return Some(arguments);
        }
        self.count(signature.usage, given, extent);
        None
    }

    /// Reports a wrong number of arguments.
    pub(super) fn count(&mut self, usage: &str, given: usize, extent: Extent) {
        self.report(extent, Mistake::ArgumentCount { usage: usage.into(), given: counted(given, "argument") });
    }

    fn unknown_argument(&mut self, signature: Signature<'_>, key: &Name) {
        let known = match signature.keys {
            [] => "it has no named arguments".to_owned(),
            keys => format!("its named arguments are {}", listed(keys.iter().copied())),
        };
        let (function, argument) = (signature.function().to_owned(), key.text.clone());
        self.report(key.extent(), Mistake::UnknownArgument { function, argument, known });
    }

    /// The axis that an argument names.
    pub(super) fn axis(&mut self, function: &str, expr: &Expr) -> Option<Axis> {
        let name = match &expr.kind {
            ExprKind::Wrong => return None,
            ExprKind::Name(name) => name,
            _ => {
                self.report(expr.extent, Mistake::NotAnAxis { function: function.into() });
                return None;
            }
        };
        self.axis_named(name)
    }

    /// The axis of a name.
    pub(super) fn axis_named(&mut self, name: &Name) -> Option<Axis> {
        let program = self.builder.program();
        let axis = program.axis(&name.text);
        if axis.is_none() && self.place != Place::Helper {
            let hint = did_you_mean(&name.text, program.axes.iter().map(String::as_str));
            self.report(name.extent(), Mistake::UnknownAxis { axis: name.text.clone(), hint });
        }
        axis
    }
}
