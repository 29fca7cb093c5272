//! Reverse mode: the program of all gradients of a program.
//!
//! [`adjoint`] copies the nodes of the forward pass, then takes cotangents from the outputs back to the parameters:
//!
//! | step | module |
//! |---|---|
//! | ȳ of a map goes to its operands, times the partial derivatives | `rules`, the table |
//! | what was broadcast is summed over the axes it lacked | `cotangents` |
//! | the same for positions, node by node from the last to the first | `sweep` |
//! | a scan: λ by a reverse scan, then a map | `scan` |
//! | the Jacobians of `combine`, found symbolically | `combination` |
//! | a recurrence of matrices: the reversed one of their transposes, then maps | `matrix` |
//! | λ by the closure of J_L's zero pattern | `lambda`, `components`, `affine`, `pattern`, `linear` |
//! | a field that nothing read depends on | `gauge` |
//! | what is the same in every gauge, as a softmax's mean and log-sum-exp | `normal` |
//! | a reduction: no scan if its weights telescope or it chooses one element | `reduce`, `telescope`, `winner` |
//!
//! Values of the forward pass are read if they are outputs and computed again if not; what nothing needs is dropped by
//! [`crate::simplify`].

mod affine;
mod combination;
mod components;
mod cotangents;
mod equations;
mod evaluate;
mod gauge;
mod lambda;
mod linear;
mod matrix;
mod normal;
mod pattern;
mod recurrence;
mod reduce;
pub(crate) mod rules;
mod scan;
mod sweep;
mod telescope;
mod winner;

use std::collections::HashMap;

use thiserror::Error;

use crate::build::Builder;
use crate::copy::Copy;
use crate::elem::{Elem, Ty};
use crate::ir::{AxisSet, Literal, Node, Op, Output, Param, Program, Value};
use crate::relative::relative;
use crate::simplify::{retain_params, simplify};
use crate::typing::TypeError;
use crate::uses::behind_combinations;
use crate::verify::{VerifyError, verify};

pub(crate) use cotangents::sum_over;
pub use equations::equations;
use sweep::Sweep;

/// The most fields an operator may have ([`crate::verify`]).
pub(crate) const MAX_FIELDS: usize = 32;

/// Why a program has no adjoint.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AdjointError {
    /// The program is not valid.
    #[error("`{program}` is not a valid program: {}", errors.iter().map(VerifyError::to_string).collect::<Vec<_>>().join("; "))]
    Invalid {
        /// The program's name.
        program: String,
        /// The fault of it.
        errors: Vec<VerifyError>,
    },
    /// No output depends on a parameter in a differentiable way.
    #[error("`{program}` has no gradient: {reason}")]
    NothingToDifferentiate {
        /// The program's name.
        program: String,
        /// Why, in words.
        reason: &'static str,
    },
    /// A matrix of coupled fields is too large for one operator.
    #[error(
        "the adjoint of a scan by `{operator}` couples {coupled} fields, \
         whose matrix and vector do not fit into the {MAX_FIELDS} fields of an operator"
    )]
    TooManyFields {
        /// The operator.
        operator: String,
        /// How many fields depend on each other.
        coupled: usize,
    },
    /// An operation of the adjoint cannot be typed.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// The adjoint of a program: cotangents of its outputs in, cotangents of its parameters out.
///
/// It is called `<name>.bar`. Its parameters are, in this order:
///
/// * those parameters of the program that it needs;
/// * those outputs of the program that it reads instead of computing them again (residuals): outputs that hold a value
///   behind a scan or a reduction without rounding it, or a softmax's mean, rounded or not. Of a program for calls of any
///   type, an output in [`Elem::State`] does so, one in `f32` does not: a call may compute in `f64`;
/// * for every floating-point output y its cotangent `y.bar` (`y.bar.bar` and so on if that is taken, as in adjoints of
///   adjoints), 0 by default. The cotangents are the last parameters, in the order of the outputs: that, and not its name, says
///   whose cotangent a parameter is.
///
/// A parameter of the program or a residual has its own name, and no two parameters have the same.
///
/// Its outputs are `p.bar` for every floating-point parameter p, with p's axes and element type: the sum over outputs
/// y of (∂y/∂p)ᵀ·ȳ, zero for a parameter that nothing depends on differentiably. The result is a valid program, so it
/// has an adjoint in turn (residuals are parameters like any other).
pub fn adjoint(program: &Program) -> Result<Program, AdjointError> {
    derive(program, Parameters::Needed)
}

/// The adjoint as a function of the program's parameters and of cotangents alone: it computes what [`adjoint`] reads from outputs.
///
/// Its parameters are all those of the program, also the ones that it does not need, and then the cotangents. It is what a further
/// derivative is taken of: of a program that reads outputs, the adjoint would hold these fixed.
pub fn adjoint_of_inputs(program: &Program) -> Result<Program, AdjointError> {
    derive(program, Parameters::All)
}

/// The parameters of an adjoint, beside the cotangents.
#[derive(Clone, Copy, PartialEq)]
enum Parameters {
    /// Parameters of the program that the adjoint needs, and outputs of it that the adjoint reads.
    Needed,
    /// Every parameter of the program, and no outputs.
    All,
}

fn derive(program: &Program, parameters: Parameters) -> Result<Program, AdjointError> {
    let mut reverse = Reverse::of(program, parameters)?;
    let gradients = reverse.gradients()?;
    if gradients.iter().all(Option::is_none) {
        let reason = reason(program);
        return Err(AdjointError::NothingToDifferentiate { program: program.name.clone(), reason });
    }
    reverse.finish(&gradients)
}

/// The names of the parameters that have a gradient: floating-point parameters that some output depends on
/// differentiably. In [`adjoint`] the others get zeros.
pub fn differentiable_params(program: &Program) -> Result<Vec<String>, AdjointError> {
    let gradients = Reverse::of(program, Parameters::Needed)?.gradients()?;
    let named = program.params.iter().zip(&gradients);
    Ok(named.filter(|(_, gradient)| gradient.is_some()).map(|(param, _)| param.name.clone()).collect())
}

fn reason(program: &Program) -> &'static str {
    if !program.params.iter().any(|p| p.elem.is_float()) {
        "no parameter is floating-point"
    } else if !program.outputs.iter().any(|o| o.elem.is_float()) {
        "no output is floating-point"
    } else {
        "outputs depend on its floating-point parameters only through integers, bools and functions that are constant \
         between jumps"
    }
}

/// The adjoint of one program under construction.
struct Reverse {
    forward: Program,
    sweep: Sweep,
    /// The parameters that stand for values of the forward pass.
    residuals: HashMap<Value, u32>,
    parameters: Parameters,
}

impl Reverse {
    /// The nodes of the forward pass, the parameters of the adjoint, and the cotangents of the outputs.
    fn of(program: &Program, parameters: Parameters) -> Result<Reverse, AdjointError> {
        verify(program).map_err(|errors| AdjointError::Invalid { program: program.name.clone(), errors })?;
        let forward = simplify(&relative(program));
        let name = format!("{}.bar", program.name);
        let start = Program { name, outputs: vec![], ..forward.clone() };
        let sweep = Sweep::of(Builder::from_program(start));
        let mut reverse = Reverse { forward, sweep, residuals: HashMap::new(), parameters };
        if parameters == Parameters::Needed {
            reverse.add_residuals()?;
        }
        reverse.add_cotangents()?;
        Ok(reverse)
    }

    fn add_residuals(&mut self) -> Result<(), TypeError> {
        let behind = behind_combinations(&self.forward);
        let dear = |o: &&Output| behind[o.value.0 as usize] && is_residual(&self.forward, o);
        for output in self.forward.outputs.iter().filter(dear) {
            let k = self.sweep.b.program().params.len() as u32;
            if self.sweep.residuals.insert(output.value) {
                self.sweep.b.param(&output.name, &output.axes, output.elem, None)?;
                self.residuals.insert(output.value, k);
            }
        }
        Ok(())
    }

    fn add_cotangents(&mut self) -> Result<(), TypeError> {
        for Output { name, axes, elem, value } in &self.forward.outputs {
            if elem.is_float() {
                let b = &mut self.sweep.b;
                let name = marked(name, ".bar", |name| b.program().param(name).is_some());
                let bar = b.param(&name, axes, *elem, Some(Literal::Float(0.0)))?;
                self.sweep.cotangents.add(b, *value, bar, axes.iter().copied().collect())?;
            }
        }
        Ok(())
    }

    /// The gradient of every parameter of the program; `None` where there is none.
    fn gradients(&mut self) -> Result<Vec<Option<Value>>, AdjointError> {
        self.sweep.run()?;
        let mut gradients = vec![];
        for (k, param) in self.forward.params.iter().enumerate() {
            let b = &mut self.sweep.b;
            let value = b.append(Op::Param(k as u32), param.elem.value(), AxisSet::EMPTY)?;
            gradients.push(if param.elem.is_float() { self.sweep.cotangents.take(b, value)? } else { None });
        }
        Ok(gradients)
    }

    fn finish(mut self, gradients: &[Option<Value>]) -> Result<Program, AdjointError> {
        let params = self.forward.params.clone();
        for (Param { name, axes, elem, .. }, gradient) in params.iter().zip(gradients) {
            if elem.is_float() {
                let b = &mut self.sweep.b;
                let gradient = gradient.map_or_else(|| b.float(elem.value(), 0.0), Ok)?;
                b.output(&format!("{name}.bar"), axes, *elem, gradient)?;
            }
        }
        let (parameters, outputs) =
            (self.parameters, self.forward.outputs.iter().filter(|o| o.elem.is_float()).count());
        let program = simplify(&self.read_residuals()?);
        if parameters == Parameters::All {
            return Ok(program);
        }
        let cotangents = program.params.len() - outputs;
        Ok(retain_params(&program, |k, read| read || k as usize >= cotangents))
    }

    /// The program in which residuals are read from their parameters.
    fn read_residuals(self) -> Result<Program, TypeError> {
        let program = self.sweep.b.finish();
        let mut into = Builder::from_program(Program { nodes: vec![], outputs: vec![], ..program.without_nodes() });
        let mut copy = Copy::of(&program);
        let mut residuals: Vec<_> = self.residuals.into_iter().collect();
        residuals.sort_by_key(|(_, k)| *k);
        for (value, k) in residuals {
            copy.set(value, into.append(Op::Param(k), program.node(value).ty, AxisSet::EMPTY)?);
        }
        let roots: Vec<Value> = program.outputs.iter().map(|o| o.value).collect();
        let roots = copy.run(&mut into, &roots)?;
        let renamed = |(o, value): (&Output, Value)| Output { value, ..o.clone() };
        let outputs = program.outputs.iter().zip(roots).map(renamed).collect();
        Ok(Program { outputs, ..into.finish() })
    }
}

/// Whether an output holds its value exactly.
fn is_residual(program: &Program, output: &Output) -> bool {
    let Node { ty, axes, .. } = *program.node(output.value);
    let exact = !matches!(output.elem, Elem::Bf16 | Elem::F16) && output.elem.value() == ty;
    let whole = axes == output.axes.iter().copied().collect();
    // Of a mean, one more rounding of the output itself is taken: a low-precision product with its own cotangent.
    let enough = exact || (ty != Ty::F64 && output.elem.is_float() && normal::is_mean(program, output.value));
    enough && whole && program.param(&output.name).is_none()
}

/// A name with a mark, repeated until the name is not taken.
pub(crate) fn marked(name: &str, mark: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut marked = format!("{name}{mark}");
    while taken(&marked) {
        marked.push_str(mark);
    }
    marked
}
