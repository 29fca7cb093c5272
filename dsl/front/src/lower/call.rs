//! Calls: the functions of the language, and helper functions, which are inlined.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Binary, Literal, Unary};

use super::arguments::Signature;
use super::{Lower, Place, Term};
use crate::diagnostics::Diagnostics;
use crate::elsewhere::write_instead;
use crate::extent::Extent;
use crate::library::{CALLED, Library};
use crate::mistake::Mistake;
use crate::names::FUNCTIONS;
use crate::suggest::{counted, did_you_mean};
use crate::syntax::{Argument, Expr, ExprKind, HelperItem, Name};

/// Lowers helper functions that nothing calls, so that their mistakes are seen too.
pub(super) fn check_helpers(library: &Library, mistakes: &mut Diagnostics) {
    for helper in library.helpers.iter().filter(|helper| !library.is_inlined(&helper.name.text)) {
        let mut lower = Lower::new(Builder::new(""), &helper.name.text, Ty::F64, library, mistakes);
        lower.place = Place::Helper;
        let arguments = vec![Term::Wrong; helper.params.len()];
        lower.inline(helper, arguments);
    }
}

/// The function of one value that the language knows by that name.
fn unary(name: &str) -> Option<Unary> {
    Unary::from_name(name).filter(|op| !matches!(op, Unary::Neg | Unary::Not))
}

impl Lower<'_> {
    /// Whether a name can be called.
    pub(super) fn is_function(&self, name: &str) -> bool {
        unary(name).is_some() || FUNCTIONS.contains(&name) || CALLED.contains(&name) || self.helper(name).is_some()
    }

    /// The meaning of `function(arguments)`.
    pub(super) fn call(&mut self, function: &Expr, arguments: &[Argument], extent: Extent) -> Term {
        match &function.kind {
            ExprKind::Wrong => Term::Wrong,
            ExprKind::Name(name) => self.call_named(name, arguments, extent),
            ExprKind::Call(inner, _) if matches!(&inner.kind, ExprKind::Name(name) if name.text == "segmented") => {
                self.wrong(inner.extent, Mistake::OperatorAsValue { name: "segmented".into() })
            }
            _ => self.wrong(function.extent, Mistake::NotCallable {}),
        }
    }

    fn call_named(&mut self, name: &Name, arguments: &[Argument], extent: Extent) -> Term {
        if let Some(hint) = self.misplaced(&name.text) {
            return self
                .wrong(name.extent(), Mistake::CombineFunction { function: name.text.clone(), hint: hint.into() });
        }
        match name.text.as_str() {
            "rename" => self.rename(arguments, extent),
            "sum" => self.sum(arguments, extent),
            "reduce" => self.reduce(arguments, extent),
            "scan" => self.scan(arguments, extent),
            "last" => self.end("last", arguments, extent),
            "first" => self.end("first", arguments, extent),
            "shift" => self.shift(arguments, extent),
            "index" => self.position("index", arguments, extent),
            "size" => self.position("size", arguments, extent),
            "select" => self.select(arguments, extent),
            "powi" => self.powi(arguments, extent),
            "max" => self.call_two("max(x, y)", Binary::Max, arguments, extent),
            "min" => self.call_two("min(x, y)", Binary::Min, arguments, extent),
            text => match unary(text) {
                Some(op) => self.call_one(op, arguments, extent),
                None => self.call_helper(name, arguments, extent),
            },
        }
    }

    /// Why a function has no meaning where it stands, if it has none.
    fn misplaced(&self, name: &str) -> Option<&'static str> {
        let is_along = ["index", "size", "reduce", "scan", "last", "first", "shift"].contains(&name);
        match self.place {
            Place::Combine if is_along || matches!(name, "sum" | "rename") => Some(
                "`combine` of two states is a formula of numbers; for vectors and matrices declare the state that elements act on, as in `op Name(k: [K], v: [V]) -> (s: [V, K])`",
            ),
            Place::Step if is_along => {
                Some("of the functions over an axis, one step of a state has `sum` and `rename`")
            }
            Place::Kernel if name == "rename" => {
                Some("it belongs to `combine` of an operator with a state, as in `sum(J, rename(l.s, K = J) * r.m)`")
            }
            _ => None,
        }
    }

    fn call_one(&mut self, op: Unary, arguments: &[Argument], extent: Extent) -> Term {
        let usage = format!("{}(x)", op.name());
        match self.arguments(Signature::plain(&usage, 1), arguments, extent) {
            Some(given) => self.unary(op, given.positional[0]),
            None => Term::Wrong,
        }
    }

    fn call_two(&mut self, usage: &str, op: Binary, arguments: &[Argument], extent: Extent) -> Term {
        match self.arguments(Signature::plain(usage, 2), arguments, extent) {
            Some(given) => self.of_two(op, given.positional[0], given.positional[1], extent),
            None => Term::Wrong,
        }
    }

    /// `select(condition, a, b)`.
    fn select(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let signature = Signature::plain("select(condition, a, b)", 3);
        let Some(given) = self.arguments(signature, arguments, extent) else { return Term::Wrong };
        let [condition, a, b] = given.positional[..] else { return Term::Wrong };
        let condition = self.condition(condition);
        let (then, otherwise) = ((self.term(a), a.extent), (self.term(b), b.extent));
        condition.map_or(Term::Wrong, |condition| self.choose(condition, then, otherwise))
    }

    /// `powi(x, n)`.
    fn powi(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let signature = Signature::plain("powi(x, 2)", 2);
        let Some(given) = self.arguments(signature, arguments, extent) else { return Term::Wrong };
        let [base, exponent] = given.positional[..] else { return Term::Wrong };
        match self.integer(exponent, "the exponent of `powi`").map(i32::try_from) {
            Some(Ok(n)) => self.unary(Unary::Powi(n), base),
            Some(Err(_)) => {
                let literal = Mistake::NotALiteral { what: "the exponent of `powi`".into() };
                self.wrong(exponent.extent, literal)
            }
            None => Term::Wrong,
        }
    }

    /// A literal integer.
    pub(super) fn integer(&mut self, expr: &Expr, what: &str) -> Option<i64> {
        match self.term(expr) {
            Term::Literal(Literal::Int(n)) => Some(n),
            Term::Wrong => None,
            _ => {
                self.report(expr.extent, Mistake::NotALiteral { what: what.into() });
                None
            }
        }
    }

    fn helper(&self, name: &str) -> Option<&HelperItem> {
        self.helpers.iter().find(|helper| helper.name.text == name)
    }

    fn call_helper(&mut self, name: &Name, arguments: &[Argument], extent: Extent) -> Term {
        let (helpers, functions) = (self.helpers.clone(), self.library.functions.clone());
        let is_it = |helper: &&HelperItem| helper.name.text == name.text;
        let own = helpers.iter().find(is_it);
        let standard = functions.iter().find(is_it).filter(|_| CALLED.contains(&name.text.as_str()));
        let Some(helper) = own.or(standard) else {
            return self.call_unknown(name, arguments);
        };
        let given: Vec<Term> = arguments.iter().map(|argument| self.term(&argument.value)).collect();
        if let Some(key) = arguments.iter().find_map(|argument| argument.key.as_ref()) {
            let (function, argument) = (name.text.clone(), key.text.clone());
            let known = "helper functions take their arguments in order".into();
            return self.wrong(key.extent(), Mistake::UnknownArgument { function, argument, known });
        }
        if given.len() != helper.params.len() {
            let params: Vec<&str> = helper.params.iter().map(|param| param.text.as_str()).collect();
            self.count(&format!("{}({})", name.text, params.join(", ")), given.len(), extent);
            return Term::Wrong;
        }
        if self.inlining.contains(&name.text) {
            return self.wrong(name.extent(), Mistake::Recursion { name: name.text.clone() });
        }
        if own.is_some() {
            return self.inline(helper, given);
        }
        let extents = arguments.iter().map(|argument| argument.value.extent);
        let Some(given) = self.floats(&name.text, given.into_iter().zip(extents)) else { return Term::Wrong };
        let outer = std::mem::replace(&mut self.helpers, functions.clone());
        let term = self.inline(helper, given);
        self.helpers = outer;
        term
    }

    /// The arguments of a standard function, which are floats: no token of the user's shows its body.
    fn floats(&mut self, function: &str, given: impl Iterator<Item = (Term, Extent)>) -> Option<Vec<Term>> {
        let mut floats = vec![];
        for (term, extent) in given {
            let term = term.unwrapped();
            if let Term::Literal(Literal::Int(n)) = term {
                floats.push(Some(Term::Literal(Literal::Float(n as f64))));
                continue;
            }
            if let Term::Literal(Literal::Float(_)) = term {
                floats.push(Some(term));
                continue;
            }
            let value = self.value(term, extent);
            let found = value.map_or(Ty::F64, |value| self.ty(value));
            if !found.is_float() {
                let hint = "convert it with `as f32`".into();
                let (function, expected) = (function.to_owned(), "a float".to_owned());
                let found = super::explain::in_words(found);
                self.report(extent, Mistake::OperandType { function, expected, found, hint });
            }
            floats.push(value.filter(|_| found.is_float()).map(Term::Value));
        }
        floats.into_iter().collect()
    }

    /// A misspelt function may take an axis and an operator: only its other arguments are looked at.
    fn call_unknown(&mut self, name: &Name, arguments: &[Argument]) -> Term {
        for Argument { value, .. } in arguments {
            let word = match &value.kind {
                ExprKind::Name(word) => Some(word),
                ExprKind::Call(callee, _) => match &callee.kind {
                    ExprKind::Name(word) => Some(word),
                    _ => None,
                },
                _ => None,
            };
            let text = word.map_or("", |word| word.text.as_str());
            if self.builder.program().axis(text).is_none() && self.library.operator(text).is_none() {
                self.term(value);
            }
        }
        let mistake = self.unknown_function(&name.text);
        self.wrong(name.extent(), mistake)
    }

    fn unknown_function(&self, text: &str) -> Mistake {
        let name = text.to_owned();
        if self.library.operator(text).is_some() {
            return Mistake::OperatorAsValue { name };
        }
        if let Some(instead) = write_instead(text) {
            return Mistake::UnknownFunction { name, hint: format!("; write `{instead}`") };
        }
        let own: Vec<&str> = self.helpers.iter().map(|helper| helper.name.text.as_str()).collect();
        let maps = Unary::all().map(Unary::name).filter(|name| unary(name).is_some()).collect();
        let hint = did_you_mean(text, [own, maps, FUNCTIONS.to_vec(), CALLED.to_vec()].concat());
        Mistake::UnknownFunction { name, hint }
    }

    /// The body of a helper function with its parameters bound.
    fn inline(&mut self, helper: &HelperItem, arguments: Vec<Term>) -> Term {
        self.library.mark_inlined(&self.helpers, &helper.name.text);
        let outer = std::mem::take(&mut self.scope);
        for (name, argument) in helper.params.iter().zip(arguments) {
            self.scope.push(&name.text, argument);
        }
        self.inlining.push(helper.name.text.clone());
        let term = self.body(&helper.body);
        self.inlining.pop();
        self.scope = outer;
        self.check_results(helper, term)
    }

    /// The results are as many as the signature announces.
    fn check_results(&mut self, helper: &HelperItem, term: Term) -> Term {
        let Some((expected, extent)) = helper.results else { return term };
        let given = match &term {
            Term::Wrong => return term,
            Term::Tuple(parts) => parts.len(),
            _ => 1,
        };
        if given == expected {
            return term;
        }
        let (expected, given) = (counted(expected, "result"), given.to_string());
        self.wrong(extent, Mistake::ResultCount { function: helper.name.text.clone(), expected, given })
    }
}
