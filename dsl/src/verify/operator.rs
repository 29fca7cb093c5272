//! Checks of operators.

use crate::elem::Ty;
use crate::ir::{Op, Operator, OperatorId, Value};
use crate::names::is_name;
use crate::typing::{Scope, TypeError, check_literal};

use super::{Reason, Subject, Verifier};

impl Verifier<'_> {
    pub(super) fn check_operators(&mut self) {
        for (k, operator) in self.program.operators.iter().enumerate() {
            let id = OperatorId(k as u32);
            if !is_name(&operator.name) {
                self.report(Subject::Operator(id), Reason::Name(operator.name.clone()));
            }
            self.check_fields(id, operator);
            self.check_body(id, operator);
            self.check_combine(id, operator);
            self.check_domain(id, operator);
        }
    }

    fn check_fields(&mut self, id: OperatorId, operator: &Operator) {
        let (fields, identity) = (&operator.fields, &operator.identity);
        self.check_field_names(id, operator);
        if !(1..=32).contains(&fields.len()) {
            self.report(Subject::Operator(id), Reason::FieldCount(fields.len()));
        }
        if identity.len() != fields.len() {
            let (fields, given) = (fields.len(), identity.len());
            self.report(Subject::Operator(id), Reason::PartCount { part: "identity", fields, given });
        }
        for (k, field) in fields.iter().enumerate() {
            let subject = Subject::Field(id, k as u32);
            if field.ty == Ty::Tuple {
                self.report(subject, TypeError::Tuple { op: "field" });
            } else if let Some(Err(error)) = identity.get(k).map(|literal| check_literal(*literal, field.ty)) {
                self.report(subject, error);
            }
        }
        let gauge = operator.gauge.map(|k| fields.get(k as usize));
        if gauge.is_some_and(|field| field.is_none_or(|f| !f.ty.is_float())) {
            self.report(Subject::Operator(id), Reason::Gauge);
        }
    }

    fn check_field_names(&mut self, id: OperatorId, operator: &Operator) {
        for (k, field) in operator.fields.iter().enumerate() {
            let subject = Subject::Field(id, k as u32);
            if !is_name(&field.name) {
                self.report(subject, Reason::Name(field.name.clone()));
            }
            if operator.fields[..k].iter().any(|other| other.name == field.name) {
                self.report(subject, Reason::Duplicate);
            }
        }
    }

    fn check_body(&mut self, id: OperatorId, operator: &Operator) {
        for (i, node) in operator.body.iter().enumerate() {
            let fields = Some(operator.fields.as_slice());
            let scope = Scope { program: self.program, nodes: &operator.body[..i], fields };
            self.check_node(Subject::Body(id, Value(i as u32)), scope, node);
        }
    }

    fn check_domain(&mut self, id: OperatorId, operator: &Operator) {
        let (fields, domain) = (operator.fields.as_slice(), &operator.domain);
        for (i, node) in domain.body.iter().enumerate() {
            let subject = Subject::Domain(id, Value(i as u32));
            match node.op {
                Op::Input(index) if index as usize >= fields.len() => {
                    self.report(subject, TypeError::Unknown { kind: "field", index });
                }
                _ => {
                    let scope = Scope { program: self.program, nodes: &domain.body[..i], fields: Some(fields) };
                    self.check_node(subject, scope, node);
                }
            }
        }
        for condition in &domain.conditions {
            match domain.body.get(condition.0 as usize).map(|node| node.ty) {
                None => self.report(Subject::Operator(id), TypeError::Unknown { kind: "value", index: condition.0 }),
                Some(Ty::Bool) => {}
                Some(found) => {
                    self.report(Subject::Domain(id, *condition), Reason::ValueType { expected: Ty::Bool, found });
                }
            }
        }
    }

    fn check_combine(&mut self, id: OperatorId, operator: &Operator) {
        let (fields, given) = (operator.fields.len(), operator.combine.len());
        if fields != given {
            self.report(Subject::Operator(id), Reason::PartCount { part: "combination", fields, given });
        }
        for (k, (field, value)) in operator.fields.iter().zip(&operator.combine).enumerate() {
            let subject = Subject::Field(id, k as u32);
            match operator.body.get(value.0 as usize) {
                None => self.report(subject, TypeError::Unknown { kind: "value", index: value.0 }),
                Some(node) if node.ty != field.ty => {
                    self.report(subject, Reason::ValueType { expected: field.ty, found: node.ty });
                }
                Some(_) => {}
            }
        }
    }
}
