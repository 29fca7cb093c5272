//! The operations of nodes.

use crate::ir::{Binary, Field, MatrixScan, Op, OperatorId, Program, Term, Unary, Value};

use super::lex::Token;
use super::{Parsed, Parser};

impl Parser {
    /// Any operation of a program.
    pub(super) fn op(&mut self) -> Parsed<Op> {
        let Token::Name(word) = self.peek().clone() else { return self.field_or_infix() };
        match word.as_str() {
            "param" => {
                self.advance();
                let find = |program: &Program, name: &str| program.param(name).map(|k| k as usize);
                self.index_or_name("parameter", find).map(Op::Param)
            }
            "input" => {
                self.advance();
                self.index_or_name("number of an input", |_, _| None).map(Op::Input)
            }
            "index" => self.call(|p| p.axis().map(Op::Index)),
            "size" => self.call(|p| p.axis().map(Op::Size)),
            "reduce" => self.call(Parser::reduce),
            "scan" => self.call(Parser::scan),
            "matrix_scan" => self.call(Parser::matrix_scan),
            "last" => self.call(|p| {
                let axis = p.axis()?;
                Ok(Op::Last { axis, value: p.next_value()?, empty: p.next_value()? })
            }),
            "first" => self.call(|p| {
                let axis = p.axis()?;
                Ok(Op::First { axis, value: p.next_value()?, empty: p.next_value()? })
            }),
            "shift" => self.call(Parser::shift),
            "starts" => self.call(|p| {
                let axis = p.axis()?;
                p.sign(",")?;
                Ok(Op::Starts { axis, list: p.axis()?, offsets: p.next_value()? })
            }),
            "gather" => self.call(|p| {
                let axis = p.axis()?;
                p.sign(",")?;
                let to = p.axis()?;
                Ok(Op::Gather { axis, to, value: p.next_value()?, index: p.next_value()?, inverse: p.next_value()? })
            }),
            _ => self.map(),
        }
    }

    /// A map or a constant.
    pub(super) fn map(&mut self) -> Parsed<Op> {
        let Token::Name(word) = self.peek().clone() else { return self.infix() };
        match word.as_str() {
            "const" => {
                self.advance();
                self.literal().map(Op::Const)
            }
            "powi" => self.call(|p| {
                let a = p.value()?;
                p.sign(",")?;
                Ok(Op::Unary(Unary::Powi(p.integer()?), a))
            }),
            "max" => self.call(|p| Ok(Op::Binary(Binary::Max, p.value()?, p.next_value()?))),
            "min" => self.call(|p| Ok(Op::Binary(Binary::Min, p.value()?, p.next_value()?))),
            "select" => self.call(|p| Ok(Op::Select(p.value()?, p.next_value()?, p.next_value()?))),
            "convert" => self.call(|p| Ok(Op::Convert(p.elem()?, p.next_value()?))),
            "broadcast" => self.call(|p| p.value().map(Op::Broadcast)),
            name => match Unary::from_name(name) {
                Some(op) => self.call(|p| Ok(Op::Unary(op, p.value()?))),
                None => self.fail(format!("there is no operation named `{name}`")),
            },
        }
    }

    /// `input l.a`
    pub(super) fn input(&mut self, fields: &[Field]) -> Parsed<Op> {
        self.advance();
        let Token::Name(name) = self.peek().clone() else { return self.fail_expected("a field of `l` or `r`") };
        let (side, field) = name.split_once('.').map_or((name.as_str(), None), |(side, field)| (side, Some(field)));
        let offset = match side {
            "l" => 0,
            "r" => fields.len() as u32,
            _ => return self.fail_expected("a field of `l` or `r`"),
        };
        let k = match field {
            Some(field) => fields.iter().position(|f| f.name == field).map(|k| k as u32),
            None => {
                self.advance();
                self.sign(".")?;
                if let Token::Index(k) = *self.peek() { Some(k) } else { None }
            }
        };
        let Some(k) = k.and_then(|k| k.checked_add(offset)) else { return self.fail("there is no such field") };
        self.advance();
        Ok(Op::Input(k))
    }

    /// `%0.b` or `%0 * %1`
    fn field_or_infix(&mut self) -> Parsed<Op> {
        let start = self.at;
        let tuple = self.value()?;
        if !self.accept(".") {
            self.at = start;
            return self.infix();
        }
        let find = |program: &Program, name: &str| field_of(program, tuple, name);
        self.index_or_name("field", find).map(|k| Op::Field(tuple, k))
    }

    /// `%0 * %1`
    fn infix(&mut self) -> Parsed<Op> {
        let left = self.value()?;
        let sign = if let Token::Sign(sign) = self.peek() { Binary::from_symbol(sign) } else { None };
        let Some(op) = sign else { return self.fail_expected("an operation") };
        self.advance();
        Ok(Op::Binary(op, left, self.value()?))
    }

    fn reduce(&mut self) -> Parsed<Op> {
        let axis = self.axis()?;
        Ok(Op::Reduce { axis, operator: self.operator_id()?, elements: self.next_values()? })
    }

    fn scan(&mut self) -> Parsed<Op> {
        let axis = self.axis()?;
        let (operator, elements) = (self.operator_id()?, self.next_values()?);
        let (mut init, mut reverse, mut exclusive) = (vec![], false, false);
        while self.accept(",") {
            match self.name("`init`, `reverse` or `exclusive`")?.as_str() {
                "init" => init = self.tuple(Parser::value)?,
                "reverse" => reverse = true,
                "exclusive" => exclusive = true,
                word => return self.fail(format!("expected `init`, `reverse` or `exclusive`, found `{word}`")),
            }
        }
        Ok(Op::Scan { axis, operator, elements, init, reverse, exclusive })
    }

    /// `matrix_scan(T, K, decay %0, pair (%1, %2), dense (J, %3), transposed (J, %3), input %4, init %5, reverse, exclusive)`
    fn matrix_scan(&mut self) -> Parsed<Op> {
        const PARTS: &str =
            "`decay`, `pair`, `dense`, `transposed`, `input`, `init`, `reset`, `reverse` or `exclusive`";
        let axis = self.axis()?;
        self.sign(",")?;
        let along = self.axis()?;
        let (mut decay, mut input, mut init, mut terms) = (None, None, None, vec![]);
        let (mut reset, mut reverse, mut exclusive) = (None, false, false);
        while self.accept(",") {
            match self.name(PARTS)?.as_str() {
                "decay" => decay = Some(self.value()?),
                "input" => input = Some(self.value()?),
                "init" => init = Some(self.value()?),
                "reset" => reset = Some(self.value()?),
                "pair" => terms.push(self.pair()?),
                "dense" => terms.push(self.dense(false)?),
                "transposed" => terms.push(self.dense(true)?),
                "reverse" => reverse = true,
                "exclusive" => exclusive = true,
                word => return self.fail(format!("expected {PARTS}, found `{word}`")),
            }
        }
        let (Some(decay), Some(input), Some(init)) = (decay, input, init) else {
            return self.fail_expected("`decay`, `input` and `init`");
        };
        Ok(Op::MatrixScan(Box::new(MatrixScan { axis, along, decay, terms, input, init, reset, reverse, exclusive })))
    }

    /// `(%1, %2)`
    fn pair(&mut self) -> Parsed<Term> {
        self.sign("(")?;
        let term = Term::Pair { column: self.value()?, row: self.next_value()? };
        self.sign(")")?;
        Ok(term)
    }

    /// `(J, %3)`
    fn dense(&mut self, transposed: bool) -> Parsed<Term> {
        self.sign("(")?;
        let term = Term::Dense { other: self.axis()?, matrix: self.next_value()?, transposed };
        self.sign(")")?;
        Ok(term)
    }

    fn shift(&mut self) -> Parsed<Op> {
        let axis = self.axis()?;
        self.sign(",")?;
        Ok(Op::Shift { axis, by: self.integer()?, value: self.next_value()?, fill: self.next_value()? })
    }

    /// A word and its arguments in parentheses.
    fn call(&mut self, arguments: impl FnOnce(&mut Parser) -> Parsed<Op>) -> Parsed<Op> {
        self.advance();
        self.sign("(")?;
        let op = arguments(self)?;
        self.sign(")")?;
        Ok(op)
    }

    fn next_value(&mut self) -> Parsed<Value> {
        self.sign(",")?;
        self.value()
    }

    fn next_values(&mut self) -> Parsed<Vec<Value>> {
        self.sign(",")?;
        self.tuple(Parser::value)
    }

    fn operator_id(&mut self) -> Parsed<OperatorId> {
        self.sign(",")?;
        let find = |program: &Program, name: &str| program.operators.iter().position(|o| o.name == name);
        self.index_or_name("operator", find).map(OperatorId)
    }
}

fn field_of(program: &Program, tuple: Value, name: &str) -> Option<usize> {
    match program.nodes.get(tuple.0 as usize)?.op {
        Op::Scan { operator, .. } | Op::Reduce { operator, .. } => {
            program.operators.get(operator.0 as usize)?.field(name).map(|k| k as usize)
        }
        _ => None,
    }
}
