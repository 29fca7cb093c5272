//! Recurrences of matrices.

use crate::ir::{AxisSet, Literal, MatrixScan, Op, Term, Value};

use super::Writer;
use super::expression::{Environment, Level, Written};
use super::names::{Index, display_name};

impl Writer<'_> {
    /// The states of a recurrence, by a name that has an equation.
    pub(super) fn matrix_states(&mut self, scan: &MatrixScan, axes: AxisSet, at: &Environment) -> Written {
        let states = MatrixScan { exclusive: false, ..scan.clone() };
        let name = match self.matrices.get(&states) {
            Some(name) => name.clone(),
            None => self.aside(|writer| writer.matrix_recurrence(&states, axes)),
        };
        let at = if scan.exclusive { at.moved(scan.axis, -scan.later()) } else { at.clone() };
        (self.names.indexed(&name, axes, &at), Level::Atom)
    }

    /// `S[t] = w[t]·S[t−1] + (Σ_K S[t−1]·z[t])·b[t] + S[t−1]·D[t] + x[t]`; gives the name of S.
    fn matrix_recurrence(&mut self, states: &MatrixScan, axes: AxisSet) -> String {
        let name = self.matrix_name(states);
        self.matrices.insert(states.clone(), name.clone());
        let here = Environment::default();
        let left = self.names.indexed(&name, axes, &here);
        let before = self.names.indexed(&name, axes, &here.moved(states.axis, -states.later()));
        let mut parts = vec![];
        if !self.is_literal(states.decay, 0.0) {
            let decay = self.render(states.decay, &here, Level::Product);
            parts.push(if decay == "1" { before.clone() } else { format!("{decay}·{before}") });
        }
        for term in &states.terms {
            parts.push(match *term {
                Term::Pair { column, row } => {
                    let [column, row] = [column, row].map(|factor| match self.is_literal(factor, 1.0) {
                        true => String::new(),
                        false => format!("·{}", self.render(factor, &here, Level::Product)),
                    });
                    format!("(Σ_{} {before}{column}){row}", self.names.axis(states.along))
                }
                Term::Dense { matrix, transposed, .. } => {
                    let matrix = self.render(matrix, &here, Level::Atom);
                    format!("{before}·{matrix}{}", if transposed { "ᵀ" } else { "" })
                }
            });
        }
        if !self.is_literal(states.input, 0.0) || parts.is_empty() {
            parts.push(self.render(states.input, &here, Level::Sum));
        }
        let init = self.whole(states.init);
        if let Some(reset) = states.reset {
            let reset = self.render(reset, &here, Level::Choice);
            self.conditions.push(format!("{before} = 0 where {reset}"));
        }
        let outside = if states.reverse { Index::End(0) } else { Index::First(-1) };
        self.conditions.push(format!("{} = {init}", self.names.indexed(&name, axes, &here.at(states.axis, outside))));
        self.line(&left, &parts.join(" + ").replace("+ −", "− "));
        name
    }

    /// λ for states of the reverse sweep, the output that the states are, or S.
    fn matrix_name(&mut self, states: &MatrixScan) -> String {
        if states.operands().iter().any(|v| self.cotangents.contains(v)) {
            return self.names.fresh(&["Λ"]);
        }
        let is_state = |value: Value| matches!(&self.program.node(value).op, Op::MatrixScan(scan) if **scan == *states);
        match self.program.outputs.iter().find(|output| is_state(output.value)) {
            Some(output) => display_name(&output.name),
            None => self.names.fresh(&["S"]),
        }
    }

    fn is_literal(&self, value: Value, number: f64) -> bool {
        self.program.node(value).op == Op::Const(Literal::Float(number))
    }
}
