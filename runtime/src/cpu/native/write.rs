//! The sweeps of a stage.

use std::collections::HashMap;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_llvm::host::{Action, Input, Node, Number, Source, Sweep, takes_binary, takes_unary};

use super::maps::ROWS;
use super::{LANES, Output};
use crate::cpu::kernel::{self, Kernel};
use crate::cpu::lanes::SweepMode;
use crate::cpu::plan::Stage;
use crate::cpu::sweep::takes;
use crate::cpu::tile::{Combine, Instruction, Reg, SumTerm, TileOp};

/// The sweeps of a stage, and what they stand for.
pub(super) struct Written {
    pub(super) at: usize,
    pub(super) joined: Vec<usize>,
    pub(super) others: Vec<Reg>,
    pub(super) outputs: Vec<Output>,
    pub(super) ty: Ty,
    pub(super) totals: Sweep,
    pub(super) results: Sweep,
    /// Steps over the totals of parts, for results and for totals; outputs are the states before each part of the fields that these need.
    pub(super) starts: [Sweep; 2],
    /// A step over a first element that is combined by itself, for results and for totals.
    pub(super) openings: Option<[Sweep; 2]>,
}

/// The sweeps of a stage; `None` if its body is not one scan along a sequence, or computes what has no machine code.
pub(super) fn write(stage: &Stage) -> Option<Written> {
    let streamed = stage.streamed?;
    let mut scans = stage.body.iter().filter_map(|at| match &stage.code.instructions[*at].op {
        TileOp::Combine(combine) => Some((*at, &**combine)),
        _ => None,
    });
    let (at, combine) = scans.next().filter(|_| stage.passes.len() <= 1)?;
    let of = &combine.results;
    let is_plain = scans.next().is_none() && combine.is_streamed && combine.products.is_none();
    if !is_plain || !matches!(of.mode, SweepMode::Parts { .. }) || !takes(&of.scan) || !takes(&combine.totals.total) {
        return None;
    }
    let ty = of.scan.program.as_ref()?.ty;
    let stage = Scanned { stage, axis: streamed.axis, at, combine, ty };
    let has_type = |register: &Reg| stage.stage.code.registers[register.0].ty == ty;
    let has_state = combine.states.iter().all(|state| state.is_some_and(|state| has_type(&state)));
    if !has_state || !combine.elements.iter().flatten().all(has_type) {
        return None;
    }
    let mut results = stage.sweep(&of.scan, &combine.elements[0], streamed.reverse)?;
    let mut totals = stage.sweep(&combine.totals.total, &combine.elements[1], streamed.reverse)?;
    (totals.may_leave_out, results.is_closed) = (true, !of.exclusive);
    totals.keeps = combine.elements[0] == combine.elements[1];
    for input in results.inputs.iter_mut().filter(|input| totals.keeps && **input == Input::Each) {
        *input = Input::Kept;
    }
    let starts = [stage.starts(&of.merge)?, stage.starts(&combine.totals.merge)?];
    let of_kernels = [(&of.scan, &combine.elements[0]), (&combine.totals.scan, &combine.elements[1])];
    let openings = if combine.opens { Some(stage.openings(of_kernels)?) } else { None };
    let joined = stage.joined();
    let mut maps = Maps { of: &stage, sweep: results, known: stage.known(), others: vec![] };
    joined.iter().try_for_each(|at| maps.add(&stage.stage.code.instructions[*at]))?;
    let outputs = stage.outputs(&joined);
    maps.sweep.outputs =
        outputs.iter().map(|output| maps.known.get(&stage.register_of(*output)).copied()).collect::<Option<_>>()?;
    let Maps { sweep: results, others, .. } = maps;
    Some(Written { at, joined, others, outputs, ty, totals, results, starts, openings })
}

/// The maps and stores of a stage's scan, and what they stand for.
pub(super) struct WrittenMaps {
    pub(super) at: usize,
    pub(super) axis: usize,
    pub(super) joined: Vec<usize>,
    pub(super) inputs: Vec<Reg>,
    /// Stores.
    pub(super) outputs: Vec<usize>,
    pub(super) ty: Ty,
    pub(super) sweep: Sweep,
}

/// The maps and stores of a stage; `None` if its body is not one scan along a sequence, or nothing is stored that has a number for each step.
pub(super) fn write_maps(stage: &Stage) -> Option<WrittenMaps> {
    let axis = stage.streamed?.axis;
    let is_one_row = stage.tile.iter().enumerate().all(|(k, n)| k == axis || *n == 1);
    if !is_one_row || !stage.tile[axis].is_multiple_of(ROWS) {
        return None;
    }
    let mut scans = stage.body.iter().filter_map(|at| match &stage.code.instructions[*at].op {
        TileOp::Combine(combine) => Some((*at, &**combine)),
        _ => None,
    });
    let (at, combine) = scans.next().filter(|(_, combine)| combine.is_streamed && combine.products.is_none())?;
    let result = combine.outputs.iter().flatten().next()?;
    let ty = stage.code.registers[result.0].ty;
    if scans.next().is_some() || !matches!(ty, Ty::F32 | Ty::F64) {
        return None;
    }
    let of = Scanned { stage, axis, at, combine, ty };
    let joined = of.joined();
    let stores = of.outputs(&joined).into_iter().filter_map(|output| match output {
        Output::Store(k) => Some(k),
        Output::Register(_) => None,
    });
    let outputs: Vec<usize> = stores.collect();
    let lies_along = |k: &usize| {
        let register = &stage.code.registers[stage.stores[*k].register.0];
        register.ty == ty && register.dims >> axis & 1 == 1
    };
    if outputs.is_empty() || !outputs.iter().all(lies_along) {
        return None;
    }
    let mut maps = Maps { of: &of, sweep: of.empty(ROWS), known: HashMap::new(), others: vec![] };
    joined.iter().try_for_each(|at| maps.add(&stage.code.instructions[*at]))?;
    for k in &outputs {
        let source = maps.find(stage.stores[*k].register);
        maps.sweep.outputs.push(source);
    }
    let Maps { sweep, others: inputs, .. } = maps;
    Some(WrittenMaps { at, axis, joined, inputs, outputs, ty, sweep })
}

/// A stage with its scan.
struct Scanned<'s> {
    stage: &'s Stage,
    axis: usize,
    at: usize,
    combine: &'s Combine,
    ty: Ty,
}

impl Scanned<'_> {
    /// No steps of so many lanes, in the order of memory.
    fn empty(&self, lanes: usize) -> Sweep {
        Sweep {
            number: if self.ty == Ty::F32 { Number::F32 } else { Number::F64 },
            is_reversed: false,
            lanes,
            inputs: vec![],
            nodes: vec![],
            next: vec![],
            after: vec![],
            outputs: vec![],
            may_leave_out: false,
            is_closed: false,
            keeps: false,
        }
    }

    /// The sweep of a kernel over some elements, without results.
    fn sweep(&self, kernel: &Kernel, elements: &[Reg], is_reversed: bool) -> Option<Sweep> {
        let nodes = kernel.nodes.iter().map(|node| self.node(node, kernel)).collect::<Option<_>>()?;
        Some(Sweep {
            is_reversed,
            inputs: elements.iter().map(|element| self.input(*element)).collect(),
            nodes,
            next: kernel.next.iter().map(|next| next.map(source)).collect(),
            ..self.empty(LANES)
        })
    }

    /// The sweep over the totals of parts, each of which is a step of one lane.
    fn starts(&self, merge: &Kernel) -> Option<Sweep> {
        let mut sweep = self.sweep(merge, &[], false)?;
        sweep.lanes = 1;
        sweep.inputs = vec![Input::Each; merge.fields.len()];
        sweep.outputs = (0..merge.next.len()).filter(|k| merge.next[*k].is_some()).map(Source::Before).collect();
        Some(sweep)
    }

    /// A step of one lane, by kernels over their elements.
    fn openings(&self, kernels: [(&Kernel, &Vec<Reg>); 2]) -> Option<[Sweep; 2]> {
        let [results, totals] = kernels.map(|(kernel, elements)| {
            let sweep = self.sweep(kernel, elements, false)?;
            Some(Sweep { lanes: 1, ..sweep })
        });
        Some([results?, totals?])
    }

    fn input(&self, register: Reg) -> Input {
        if self.varies(register) { Input::Each } else { Input::One }
    }

    /// Whether a register has a value for each step.
    fn varies(&self, register: Reg) -> bool {
        self.stage.code.registers[register.0].dims >> self.axis & 1 == 1
    }

    fn node(&self, node: &kernel::StepNode, kernel: &Kernel) -> Option<Node> {
        let is_flag = |of: &kernel::Source| match of {
            kernel::Source::Node(k) => kernel.nodes[*k].ty == Ty::Bool,
            _ => false,
        };
        let of_flags = node.operands.first().is_some_and(is_flag);
        let action = match node.action {
            kernel::Action::Const(literal) => constant(literal, node.ty),
            kernel::Action::Unary(op) => Action::Unary(op),
            kernel::Action::Binary(op) if of_flags => Action::Logic(op),
            kernel::Action::Binary(op) => Action::Binary(op),
            kernel::Action::Select => Action::Select,
            kernel::Action::Convert(_) => return None,
        };
        let operands = node.operands.iter().map(|operand| source(*operand)).collect();
        taken(Node { action, is_flag: node.ty == Ty::Bool, operands })
    }

    /// The sources of the scan's elements and results in the sweep.
    fn known(&self) -> HashMap<Reg, Source> {
        let elements = self.combine.elements[0].iter().enumerate().map(|(k, element)| (*element, Source::Input(k)));
        let outputs = self.combine.outputs.iter().enumerate();
        let of = |field| if self.combine.results.exclusive { Source::Before(field) } else { Source::After(field) };
        elements.chain(outputs.filter_map(|(field, output)| Some(((*output)?, of(field))))).collect()
    }

    /// The maps of results that become part of the sweep: nothing else reads what they give, but stores.
    fn joined(&self) -> Vec<usize> {
        let of = |at: &usize| &self.stage.code.instructions[*at];
        let mut known: Vec<Reg> = self.combine.outputs.iter().flatten().copied().collect();
        let mut joined = vec![];
        for at in self.stage.body.iter().filter(|at| **at > self.at) {
            let instruction = of(at);
            if self.is_map(instruction, &known) {
                known.extend(instruction.result);
                joined.push(*at);
            }
        }
        loop {
            let reads_apart = |register: Reg| {
                let apart = self.stage.body.iter().filter(|at| !joined.contains(at));
                apart.into_iter().any(|at| of(at).operands.contains(&register))
            };
            let is_apart = |at: &usize| of(at).result.is_none_or(reads_apart);
            let is_unknown = |operand: &Reg| {
                let writer = self.stage.body.iter().find(|writer| of(writer).result == Some(*operand));
                writer.is_some_and(|writer| *writer > self.at && !joined.contains(writer))
            };
            let reads_unknown = |at: &usize| of(at).operands.iter().any(is_unknown);
            let Some(k) = joined.iter().position(|at| is_apart(at) || reads_unknown(at)) else { return joined };
            joined.remove(k);
        }
    }

    /// Whether an instruction is a map of results, or of other maps of them, that has machine code.
    fn is_map(&self, instruction: &Instruction, known: &[Reg]) -> bool {
        let Some(result) = instruction.result else { return false };
        let registers = &self.stage.code.registers;
        let has_code = match &instruction.op {
            TileOp::Unary(op) => takes_unary(*op) && *op != Unary::Not,
            TileOp::Binary(op) => takes_binary(*op) && !op.is_comparison(),
            TileOp::Sum(_) => true,
            _ => false,
        };
        let has_type = |register: &Reg| registers[register.0].ty == self.ty;
        let reads_results = instruction.operands.iter().any(|operand| known.contains(operand));
        has_code
            && reads_results
            && self.varies(result)
            && has_type(&result)
            && instruction.operands.iter().all(has_type)
    }

    /// Where the results and what is made of them go.
    fn outputs(&self, joined: &[usize]) -> Vec<Output> {
        let of = |at: &usize| &self.stage.code.instructions[*at];
        let results: Vec<Reg> = self.combine.outputs.iter().flatten().copied().collect();
        let maps: Vec<Reg> = joined.iter().filter_map(|at| of(at).result).collect();
        let is_known = |register: &Reg| results.contains(register) || maps.contains(register);
        let stores =
            self.stage.stores.iter().enumerate().filter(|(_, store)| !store.is_final && is_known(&store.register));
        let stores = stores.map(|(k, _)| Output::Store(k));
        let apart: Vec<&usize> = self.stage.body.iter().filter(|at| !joined.contains(at)).collect();
        let is_read = |register: &Reg| {
            let is_final = self.stage.stores.iter().any(|store| store.is_final && store.register == *register);
            is_final || apart.iter().any(|at| of(at).operands.contains(register))
        };
        stores.chain(results.iter().copied().filter(is_read).map(Output::Register)).collect()
    }

    fn register_of(&self, output: Output) -> Reg {
        match output {
            Output::Store(k) => self.stage.stores[k].register,
            Output::Register(register) => register,
        }
    }
}

/// Maps that become part of a sweep.
struct Maps<'m> {
    of: &'m Scanned<'m>,
    sweep: Sweep,
    known: HashMap<Reg, Source>,
    others: Vec<Reg>,
}

impl Maps<'_> {
    fn add(&mut self, instruction: &Instruction) -> Option<()> {
        let operands: Vec<Source> = instruction.operands.iter().map(|operand| self.find(*operand)).collect();
        let last = match &instruction.op {
            TileOp::Unary(op) => self.push(Action::Unary(*op), operands)?,
            TileOp::Binary(op) => self.push(Action::Binary(*op), operands)?,
            TileOp::Sum(terms) => self.sum(terms, &operands)?,
            _ => return None,
        };
        self.known.insert(instruction.result?, last);
        Some(())
    }

    /// Adds up terms, one after the other.
    fn sum(&mut self, terms: &[SumTerm], operands: &[Source]) -> Option<Source> {
        let mut sum = None;
        for term in terms {
            let factor = operands[term.factor];
            let value = match term.times {
                Some(times) => self.push(Action::Binary(Binary::Mul), vec![factor, operands[times]])?,
                None => factor,
            };
            let op = if term.is_subtracted { Binary::Sub } else { Binary::Add };
            sum = Some(match sum {
                Some(sum) => self.push(Action::Binary(op), vec![sum, value])?,
                None => value,
            });
        }
        sum
    }

    fn push(&mut self, action: Action, operands: Vec<Source>) -> Option<Source> {
        self.sweep.after.push(taken(Node { action, is_flag: false, operands })?);
        Some(Source::Node(self.sweep.nodes.len() + self.sweep.after.len() - 1))
    }

    /// The source of a register, which is another input if it is not known.
    fn find(&mut self, register: Reg) -> Source {
        let (sweep, others, of) = (&mut self.sweep, &mut self.others, self.of);
        *self.known.entry(register).or_insert_with(|| {
            others.push(register);
            sweep.inputs.push(of.input(register));
            Source::Input(sweep.inputs.len() - 1)
        })
    }
}

/// The node, if it has machine code.
fn taken(node: Node) -> Option<Node> {
    let is_taken = match node.action {
        Action::Unary(op) => takes_unary(op) && (op == Unary::Not) == node.is_flag,
        Action::Binary(op) => takes_binary(op),
        _ => true,
    };
    is_taken.then_some(node)
}

fn constant(literal: Literal, ty: Ty) -> Action {
    match (ty, literal) {
        (Ty::Bool, Literal::Bool(is)) => Action::Flag(is),
        (Ty::Bool, literal) => Action::Flag(literal.as_f64() != 0.0),
        _ => Action::Const(literal.as_f64().to_bits()),
    }
}

fn source(source: kernel::Source) -> Source {
    match source {
        kernel::Source::State(field) => Source::Before(field),
        kernel::Source::Element(k) => Source::Input(k),
        kernel::Source::Node(k) => Source::Node(k),
    }
}
