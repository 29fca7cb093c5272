//! Expressions, statements and patterns.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Binary, Literal, Unary, Value};

use super::{DEPTH, Lower, Term, explain, number};
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::suggest::{counted, did_you_mean, listed};
use crate::syntax::{Body, Expr, ExprKind, Infix, Name, Pattern, Statement};

/// Values that have a name of their own.
pub(super) const CONSTANTS: [(&str, f64); 2] = [("inf", f64::INFINITY), ("pi", std::f64::consts::PI)];

impl Lower<'_> {
    /// The meaning of an expression.
    pub(super) fn term(&mut self, expr: &Expr) -> Term {
        if !self.step(expr.extent) {
            return Term::Wrong;
        }
        if self.depth == DEPTH {
            return self.wrong(expr.extent, Mistake::TooDeep {});
        }
        self.depth += 1;
        let term = self.kind(expr);
        self.depth -= 1;
        term
    }

    fn kind(&mut self, expr: &Expr) -> Term {
        match &expr.kind {
            ExprKind::Wrong => Term::Wrong,
            ExprKind::Literal(literal) => Term::Literal(*literal),
            ExprKind::Name(name) => self.name(name),
            ExprKind::Tuple(parts) => Term::Tuple(parts.iter().map(|part| self.term(part)).collect()),
            ExprKind::Fields(_) => self.wrong(
                expr.extent,
                Mistake::Unexpected {
                    expected: "a value".into(),
                    found: "named fields, which only `init` takes".into(),
                },
            ),
            ExprKind::Neg(a) => self.unary(Unary::Neg, a),
            ExprKind::Not(a) => self.unary(Unary::Not, a),
            ExprKind::Binary(infix, l, r) => self.binary(*infix, l, r),
            ExprKind::If(condition, a, b) => self.conditional(condition, a, b),
            ExprKind::Block(body) => self.body(body),
            ExprKind::Call(function, arguments) => self.call(function, arguments, expr.extent),
            ExprKind::Field(value, field) => self.field(value, field),
            ExprKind::Cast(value, elem) => self.cast(value, *elem),
        }
    }

    /// One value of an expression; a literal takes the type of lone literals.
    pub(super) fn one(&mut self, expr: &Expr) -> Option<Value> {
        let term = self.term(expr);
        self.value(term, expr.extent)
    }

    fn name(&mut self, name: &Name) -> Term {
        if let Some(term) = self.scope.get(&name.text) {
            return term.clone();
        }
        if let Some((_, value)) = CONSTANTS.iter().find(|(known, _)| *known == name.text) {
            return Term::Literal(Literal::Float(*value));
        }
        if self.mistakes.is_full() {
            return Term::Wrong;
        }
        let text = name.text.clone();
        let mistake = if self.builder.program().axis(&text).is_some() {
            Mistake::AxisAsValue { axis: text }
        } else if self.library.operator(&text).is_some() {
            Mistake::OperatorAsValue { name: text }
        } else if self.is_function(&text) {
            Mistake::FunctionAsValue { name: text }
        } else {
            let known = self.scope.names().chain(CONSTANTS.map(|(known, _)| known));
            Mistake::UnknownName { hint: did_you_mean(&text, known), name: text }
        };
        self.wrong(name.extent(), mistake)
    }

    /// A function of one value, of an operand's expression.
    pub(super) fn unary(&mut self, op: Unary, operand: &Expr) -> Term {
        match self.term(operand).unwrapped() {
            Term::Literal(literal) => match number::unary(op, literal) {
                Some(literal) => Term::Literal(literal),
                None => {
                    let Some(value) = self.value(Term::Literal(literal), operand.extent) else { return Term::Wrong };
                    let built = self.builder.unary(op, value);
                    self.built(built, operand.extent).into()
                }
            },
            term => {
                let Some(value) = self.value(term, operand.extent) else { return Term::Wrong };
                let built = self.builder.unary(op, value);
                self.built(built, operand.extent).into()
            }
        }
    }

    fn binary(&mut self, infix: Infix, l: &Expr, r: &Expr) -> Term {
        if matches!(infix.text, "&&" | "||") {
            let (left, right) = (self.condition(l), self.condition(r));
            let (Some(left), Some(right)) = (left, right) else { return Term::Wrong };
            let built = self.builder.binary(infix.op, left, right);
            return self.built(built, infix.extent).into();
        }
        self.of_two(infix.op, l, r, infix.extent)
    }

    /// A function of two values; a literal takes the other operand's type.
    pub(super) fn of_two(&mut self, op: Binary, l: &Expr, r: &Expr, extent: Extent) -> Term {
        let (left, right) = (self.term(l).unwrapped(), self.term(r).unwrapped());
        if let (Term::Literal(a), Term::Literal(b)) = (&left, &right)
            && let Some(literal) = number::binary(op, *a, *b)
        {
            return Term::Literal(literal);
        }
        let Some((a, b)) = self.pair(left, l.extent, right, r.extent) else { return Term::Wrong };
        let built = self.builder.binary(op, a, b);
        self.built(built, extent).into()
    }

    /// Two values, where a literal takes the other one's type.
    pub(super) fn pair(&mut self, l: Term, le: Extent, r: Term, re: Extent) -> Option<(Value, Value)> {
        match (l.unwrapped(), r.unwrapped()) {
            (l @ Term::Literal(_), Term::Value(r)) => Some((self.typed(l, self.ty(r), le)?, r)),
            (Term::Value(l), r @ Term::Literal(_)) => Some((l, self.typed(r, self.ty(l), re)?)),
            (l, r) => {
                let (l, r) = (self.value(l, le), self.value(r, re));
                l.zip(r)
            }
        }
    }

    /// A truth value.
    pub(super) fn condition(&mut self, expr: &Expr) -> Option<Value> {
        let value = self.one(expr)?;
        let found = self.ty(value);
        if found != oplus_dsl::Ty::Bool {
            self.report(expr.extent, Mistake::ConditionType { found: explain::in_words(found) });
            return None;
        }
        Some(value)
    }

    fn conditional(&mut self, condition: &Expr, a: &Body, b: &Body) -> Term {
        let condition = self.condition(condition);
        let (then, otherwise) = (self.body(a), self.body(b));
        match condition {
            Some(condition) => self.choose(condition, (then, a.value_extent()), (otherwise, b.value_extent())),
            None => Term::Wrong,
        }
    }

    /// `if` over terms: tuples and states are chosen part by part.
    pub(super) fn choose(&mut self, condition: Value, a: (Term, Extent), b: (Term, Extent)) -> Term {
        if !self.step(a.1) {
            return Term::Wrong;
        }
        let several = |term: &Term| term.parts().filter(|parts| parts.len() != 1);
        if let (Some(then), Some(otherwise)) = (several(&a.0), several(&b.0)) {
            if then.len() != otherwise.len() {
                let mistake = pattern_count(then.len(), otherwise.len());
                return self.wrong(b.1, mistake);
            }
            let parts = then.into_iter().zip(otherwise);
            return Term::Tuple(parts.map(|(x, y)| self.choose(condition, (x, a.1), (y, b.1))).collect());
        }
        let Some((then, otherwise)) = self.pair(a.0, a.1, b.0, b.1) else { return Term::Wrong };
        let built = self.builder.select(condition, then, otherwise);
        self.built(built, b.1).into()
    }

    fn field(&mut self, value: &Expr, field: &Name) -> Term {
        match self.term(value) {
            Term::Wrong => Term::Wrong,
            Term::State(state) => match state.field(&field.text) {
                Some(term) => term.clone(),
                None => {
                    let (operator, fields) = (state.operator.clone(), listed(state.names()));
                    self.wrong(field.extent(), Mistake::UnknownField { operator, field: field.text.clone(), fields })
                }
            },
            _ => self.wrong(field.extent(), Mistake::FieldOfValue { field: field.text.clone() }),
        }
    }

    fn cast(&mut self, operand: &Expr, elem: Elem) -> Term {
        match self.term(operand).unwrapped() {
            Term::Literal(literal) => {
                let literal = number::cast(literal, elem);
                self.constant(literal, elem.value(), operand.extent).into()
            }
            term => {
                let Some(value) = self.value(term, operand.extent) else { return Term::Wrong };
                let built = self.builder.convert(elem, value);
                self.built(built, operand.extent).into()
            }
        }
    }

    /// A block inside an expression: its names end with it.
    pub(super) fn body(&mut self, body: &Body) -> Term {
        let outer = self.scope.len();
        for statement in &body.statements {
            match statement {
                Statement::Let(pattern, value) => {
                    let term = self.term(value);
                    self.bind(pattern, term);
                }
                Statement::Assign(pattern, value) => {
                    self.term(value);
                    if let Some(name) = pattern.names().first() {
                        self.report(name.extent(), Mistake::AssignOutsideKernel { name: name.text.clone() });
                    }
                }
            }
        }
        let term = match &body.value {
            Some(value) => self.term(value),
            None => self.wrong(body.extent, Mistake::NoValue {}),
        };
        self.scope.truncate(outer);
        term
    }

    /// Binds the names of a pattern.
    pub(super) fn bind(&mut self, pattern: &Pattern, term: Term) {
        match pattern {
            Pattern::Ignore => {}
            Pattern::Name(name) => {
                self.check_name(name);
                self.scope.push(&name.text, term);
            }
            Pattern::Tuple(patterns, at) => {
                for (pattern, part) in patterns.iter().zip(self.parts(patterns.len(), term, *at)) {
                    self.bind(pattern, part);
                }
            }
        }
    }

    /// A term's parts for a pattern of so many.
    pub(super) fn parts(&mut self, count: usize, term: Term, extent: Extent) -> Vec<Term> {
        let parts = match &term {
            Term::Wrong => None,
            term => Some(term.parts().unwrap_or_else(|| vec![term.clone()])),
        };
        match parts {
            Some(parts) if parts.len() == count => parts,
            Some(parts) => {
                self.report(extent, pattern_count(count, parts.len()));
                vec![Term::Wrong; count]
            }
            None => vec![Term::Wrong; count],
        }
    }

    /// A new value may not be called like something that every block knows.
    pub(super) fn check_name(&mut self, name: &Name) {
        if crate::names::is_reserved_value(&name.text) {
            self.report(name.extent(), Mistake::Reserved { name: name.text.clone() });
        }
    }
}

fn pattern_count(expected: usize, given: usize) -> Mistake {
    Mistake::PatternCount { expected: counted(expected, "part"), given: counted(given, "part") }
}
