//! Operators prepared for sweeping: what one step of a scan or reduction computes.

mod chains;
pub(super) mod program;

use oplus_dsl::ir::{Binary, Literal, Op, Operator, Unary, Value};
use oplus_dsl::{Elem, Ty};

use program::Program;

/// Where an operand of a step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A field of the state before the step.
    State(usize),
    /// One of the kernel's elements.
    Element(usize),
    /// The result of one of the kernel's nodes.
    Node(usize),
}

/// The operation of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Const(Literal),
    Unary(Unary),
    Binary(Binary),
    Select,
    Convert(Elem),
}

/// An operation of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepNode {
    pub(super) action: Action,
    pub(super) ty: Ty,
    pub(super) operands: Vec<Source>,
}

/// A field whose next value depends on its own state and on elements only, in a form that has a loop of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Recurrence {
    /// s ← s op e, where op is commutative.
    Fold { op: Binary, element: usize },
    /// s ← c·s + e.
    Linear { coefficient: usize, element: usize },
}

/// One step: from the state and the elements at an index to the next state.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The operator's fields: type and identity.
    pub(super) fields: Vec<(Ty, Literal)>,
    /// The elements: values of the operator's body that do not depend on the left operand.
    pub(super) elements: Vec<Value>,
    /// The operations that depend on the state.
    pub(super) nodes: Vec<StepNode>,
    /// The next value of each field; `None` for fields that nothing needs.
    pub(super) next: Vec<Option<Source>>,
    /// The recurrence of each field that is kept, if all of them have one.
    pub(super) recurrences: Option<Vec<Option<Recurrence>>>,
    /// The step as instructions for groups of lanes, if there are no recurrences and it can be.
    pub(super) program: Option<Program>,
}

/// How much of a step is done ahead, over whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Everything that does not depend on the state: the elements are whatever the steps need of it.
    Elements,
    /// Nothing: the elements are the right operand's fields, in order.
    Nothing,
}

impl Kernel {
    /// The step that keeps some fields (bit k for field k) and the fields that these need of the state.
    pub(super) fn new(operator: &Operator, fields: u64, ahead: Ahead) -> Kernel {
        let n = operator.fields.len();
        let identity = operator.fields.iter().map(|field| field.ty).zip(operator.identity.iter().copied());
        let mut kernel = Kernel {
            fields: identity.collect(),
            elements: vec![],
            nodes: vec![],
            next: vec![None; n],
            recurrences: None,
            program: None,
        };
        Compiler::new(operator, ahead).compile(needed_of_state(operator, fields), &mut kernel);
        kernel.recurrences = (0..n).map(|field| kernel.recurrence(field)).collect::<Result<_, ()>>().ok();
        if kernel.recurrences.is_none() {
            let elements: Vec<Ty> = match ahead {
                Ahead::Elements => kernel.elements.iter().map(|v| operator.body[v.0 as usize].ty).collect(),
                Ahead::Nothing => operator.fields.iter().map(|field| field.ty).collect(),
            };
            kernel.program = Program::of(&kernel, &elements);
        }
        kernel
    }

    /// Reads its elements from places in another list, whose types these are.
    pub(super) fn read_from(&mut self, places: &[usize], types: &[Ty]) {
        let operands = self.nodes.iter_mut().flat_map(|node| &mut node.operands);
        for source in operands.chain(self.next.iter_mut().flatten()) {
            if let Source::Element(k) = source {
                *k = places[*k];
            }
        }
        self.program = Program::of(self, types);
    }

    /// Which fields are kept, as bits.
    pub(super) fn kept(&self) -> u64 {
        (0..self.next.len()).filter(|k| self.next[*k].is_some()).fold(0, |set, k| set | 1 << k)
    }

    /// Whether every field is a fold.
    pub(super) fn folds(&self) -> bool {
        let is_fold = |recurrence: &Recurrence| matches!(recurrence, Recurrence::Fold { .. });
        self.recurrences.as_ref().is_some_and(|all| all.iter().flatten().all(is_fold))
    }

    /// The recurrence of a field; `None` for one that is not kept, an error if there is none.
    fn recurrence(&self, field: usize) -> Result<Option<Recurrence>, ()> {
        let Some(next) = self.next[field] else { return Ok(None) };
        let (op, operands) = self.as_binary(next).ok_or(())?;
        let own = Source::State(field);
        match operands {
            [s, Source::Element(element)] | [Source::Element(element), s] if s == own && is_commutative(op) => {
                Ok(Some(Recurrence::Fold { op, element }))
            }
            [Source::Element(element), product] | [product, Source::Element(element)] if op == Binary::Add => {
                let coefficient = self.coefficient(product, own).ok_or(())?;
                Ok(Some(Recurrence::Linear { coefficient, element }))
            }
            _ => Err(()),
        }
    }

    /// The element c if the source is c·s or s·c.
    fn coefficient(&self, product: Source, state: Source) -> Option<usize> {
        match self.as_binary(product)? {
            (Binary::Mul, [Source::Element(c), s] | [s, Source::Element(c)]) if s == state => Some(c),
            _ => None,
        }
    }

    fn as_binary(&self, source: Source) -> Option<(Binary, [Source; 2])> {
        let Source::Node(node) = source else { return None };
        match (self.nodes[node].action, &self.nodes[node].operands[..]) {
            (Action::Binary(op), &[l, r]) if !op.is_comparison() => Some((op, [l, r])),
            _ => None,
        }
    }
}

fn is_commutative(op: Binary) -> bool {
    use Binary::{Add, And, Max, Min, Mul, Or, Xor};
    matches!(op, Add | Mul | Max | Min | And | Or | Xor)
}

/// Whether both orders of two operands give the same, as the form of the operator shows: each field is a commutative
/// operation of the two operands' fields.
pub(super) fn commutes(operator: &Operator) -> bool {
    let n = operator.fields.len() as u32;
    let input = |v: Value| match operator.body[v.0 as usize].op {
        Op::Input(k) => Some(k),
        _ => None,
    };
    (0..n).zip(&operator.combine).all(|(field, value)| match operator.body[value.0 as usize].op {
        Op::Binary(op, a, b) => {
            let (l, r) = (Some(field), Some(field + n));
            is_commutative(op) && [(l, r), (r, l)].contains(&(input(a), input(b)))
        }
        _ => false,
    })
}

/// The given fields and all that their next values need of the state.
fn needed_of_state(operator: &Operator, fields: u64) -> u64 {
    closure(operator, fields, |dependencies, n| dependencies & ((1 << n) - 1))
}

/// The given fields and all that combinations of them need of either operand.
pub(super) fn needed_of_both(operator: &Operator, fields: u64) -> u64 {
    closure(operator, fields, |dependencies, n| (dependencies | dependencies >> n) & ((1 << n) - 1))
}

fn closure(operator: &Operator, fields: u64, needs: impl Fn(u64, usize) -> u64) -> u64 {
    let (n, dependencies) = (operator.fields.len(), operator.dependencies());
    (0..n)
        .fold(fields, |set, _| (0..n).filter(|k| set >> k & 1 == 1).fold(set, |set, k| set | needs(dependencies[k], n)))
}

/// Writes the nodes of a kernel, in the order of the operator's body.
struct Compiler<'a> {
    operator: &'a Operator,
    /// Which nodes of the body depend on the left operand.
    varies: Vec<bool>,
    ahead: Ahead,
}

impl<'a> Compiler<'a> {
    fn new(operator: &'a Operator, ahead: Ahead) -> Self {
        let mut varies: Vec<bool> = Vec::with_capacity(operator.body.len());
        for node in &operator.body {
            let from_state = match node.op {
                Op::Input(k) => (k as usize) < operator.fields.len(),
                _ => node.op.operands().iter().any(|v| varies[v.0 as usize]),
            };
            varies.push(from_state);
        }
        Compiler { operator, varies, ahead }
    }

    /// The elements and nodes that the given fields need, and the next values of these fields.
    fn compile(&self, fields: u64, kernel: &mut Kernel) {
        let needed = self.needed(fields);
        let mut sources = vec![Source::State(0); self.operator.body.len()];
        for at in (0..needed.len()).filter(|at| needed[*at]) {
            sources[at] = self.source(at, &sources, kernel);
        }
        for field in (0..self.operator.fields.len()).filter(|k| fields >> k & 1 == 1) {
            kernel.next[field] = Some(sources[self.operator.combine[field].0 as usize]);
        }
    }

    fn needed(&self, fields: u64) -> Vec<bool> {
        let mut needed = vec![false; self.operator.body.len()];
        let combine = self.operator.combine.iter().enumerate();
        combine.filter(|(k, _)| fields >> k & 1 == 1).for_each(|(_, v)| needed[v.0 as usize] = true);
        for at in (0..needed.len()).rev().filter(|at| !self.is_ahead(*at)) {
            if needed[at] {
                self.operator.body[at].op.operands().iter().for_each(|v| needed[v.0 as usize] = true);
            }
        }
        needed
    }

    fn is_ahead(&self, at: usize) -> bool {
        self.ahead == Ahead::Elements && !self.varies[at]
    }

    fn source(&self, at: usize, sources: &[Source], kernel: &mut Kernel) -> Source {
        let (node, n) = (&self.operator.body[at], self.operator.fields.len());
        match node.op {
            _ if self.is_ahead(at) => {
                kernel.elements.push(Value(at as u32));
                return Source::Element(kernel.elements.len() - 1);
            }
            Op::Input(k) if (k as usize) < n => return Source::State(k as usize),
            Op::Input(k) => return Source::Element(k as usize - n),
            _ => {}
        }
        let operands = node.op.operands().into_iter().map(|v| sources[v.0 as usize]).collect();
        let action = match &node.op {
            Op::Const(literal) => Action::Const(*literal),
            Op::Unary(op, _) => Action::Unary(*op),
            Op::Binary(op, ..) => Action::Binary(*op),
            Op::Convert(elem, _) => Action::Convert(*elem),
            _ => Action::Select,
        };
        kernel.nodes.push(StepNode { action, ty: node.ty, operands });
        Source::Node(kernel.nodes.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use oplus_dsl::parse::parse;

    use super::*;

    fn operator(fields: &str, identity: &str, body: &[&str], combine: &str) -> Operator {
        let lines = body.iter().enumerate().map(|(i, line)| format!("%{i}: {line};"));
        let body = lines.collect::<Vec<_>>().join("\n");
        let text = format!(
            "program p {{ axes L; param x: f32[L];
             operator Op({fields}) {{ identity ({identity}); {body} combine ({combine}); }}
             %0: f32[L] = param x; output y: f32[L] = %0; }}"
        );
        parse(&text).unwrap().operators.remove(0)
    }

    fn affine() -> Operator {
        let body = [
            "f32 = input l.a",
            "f32 = input l.b",
            "f32 = input r.a",
            "f32 = input r.b",
            "f32 = %0 * %2",
            "f32 = %2 * %1",
            "f32 = %5 + %3",
        ];
        operator("a: f32, b: f32", "1.0, 0.0", &body, "%4, %6")
    }

    #[test]
    fn a_state_without_the_coefficient_needs_one_recurrence() {
        let kernel = Kernel::new(&affine(), 0b10, Ahead::Elements);
        assert_eq!(kernel.elements, [Value(2), Value(3)]);
        assert_eq!(kernel.recurrences, Some(vec![None, Some(Recurrence::Linear { coefficient: 0, element: 1 })]));
    }

    #[test]
    fn only_plain_folds_commute() {
        let [l, r, max] = ["f32 = input l.s", "f32 = input r.s", "f32 = max(%1, %0)"];
        assert!(commutes(&operator("s: f32", "-inf", &[l, r, max], "%2")));
        assert!(!commutes(&operator("s: f32", "0.0", &[l, r, "f32 = %0 - %1"], "%2")));
        assert!(!commutes(&operator("s: f32", "0.0", &[l, r], "%1")));
        assert!(!commutes(&affine()));
    }

    #[test]
    fn totals_need_every_field() {
        let kernel = Kernel::new(&affine(), needed_of_both(&affine(), 0b10), Ahead::Elements);
        assert_eq!(kernel.kept(), 0b11);
        let fold = Recurrence::Fold { op: Binary::Mul, element: 0 };
        assert_eq!(kernel.recurrences.unwrap()[0], Some(fold));
    }

    #[test]
    fn what_depends_on_elements_only_is_computed_ahead() {
        let body = [
            "f32 = input l.g",
            "f32 = input l.x",
            "f32 = input r.g",
            "f32 = input r.x",
            "f32 = %0 + %2",
            "f32 = exp(%2)",
            "f32 = %5 * %1",
            "f32 = %6 + %3",
        ];
        let decay = operator("g: f32, x: f32", "0.0, 0.0", &body, "%4, %7");
        let kernel = Kernel::new(&decay, 0b10, Ahead::Elements);
        assert_eq!((kernel.kept(), &kernel.elements[..]), (0b10, &[Value(3), Value(5)][..]));
        assert!(kernel.recurrences.is_some());
        let merge = Kernel::new(&decay, 0b11, Ahead::Nothing);
        assert_eq!((merge.elements.len(), merge.nodes.len(), merge.recurrences), (0, 4, None));
    }

    #[test]
    fn coupled_fields_have_no_recurrence() {
        let body = ["f32 = input l.m", "f32 = input l.d", "f32 = input r.m", "f32 = max(%0, %2)", "f32 = %1 * %3"];
        let coupled = operator("m: f32, d: f32", "-inf, 0.0", &body, "%3, %4");
        let kernel = Kernel::new(&coupled, 0b10, Ahead::Elements);
        assert_eq!((kernel.kept(), kernel.recurrences), (0b11, None));
    }
}
