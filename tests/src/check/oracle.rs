//! What the outputs of a call must be.

use oplus_dsl::decay::decays;
use oplus_dsl::interpret::{Array, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::rebase::rebase;
use oplus_dsl::{Elem, scalar};

use super::CheckError;
use super::bound::{Cell, evaluate, unit};

/// What an output must be, with bounds.
pub struct Expected {
    name: String,
    elem: Elem,
    values: Array,
    cells: Vec<Cell>,
}

/// How well an output agrees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    /// The largest error in units of its bound: agreement up to 1.
    pub worst: f64,
    /// Elements compared.
    pub compared: usize,
    /// Elements without a bound, because a condition or a quotient hangs on rounding.
    pub unbounded: usize,
}

/// The outputs of a program for inputs of all its parameters, by the interpreter, with bounds by [`evaluate`].
///
/// # Errors
/// [`CheckError::Oracle`] when the program cannot be interpreted.
pub fn expected(program: &Program, inputs: &[Array], sizes: &[usize]) -> Result<Vec<Expected>, CheckError> {
    let given: Vec<Option<Array>> = inputs.iter().cloned().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes.iter().copied()).collect();
    let values = interpret_sized(program, &given, &named, Mode::default());
    let values = values.map_err(|e| CheckError::Oracle(e.to_string()))?;
    // Kernels are made of the program after its change of base, whose errors are other ones.
    let cells = evaluate(&decays(&rebase(program)), inputs, sizes);
    let all = program.outputs.iter().zip(values).zip(cells);
    Ok(all.map(|((o, values), cells)| Expected { name: o.name.clone(), elem: o.elem, values, cells }).collect())
}

impl Expected {
    /// Compares what was computed, with a tree that is so many times deeper than a balanced one.
    ///
    /// # Errors
    /// [`CheckError::Wrong`] with the first element that is beyond its bound.
    pub fn compare(&self, found: &Array, slack: f64) -> Result<Agreement, CheckError> {
        let mut all = Agreement::default();
        for (i, cell) in self.cells.iter().enumerate() {
            let (wanted, got) = (self.values.data.get(i).as_f64(), found.data.get(i).as_f64());
            let Some(bound) = bound(self.elem, *cell, wanted, slack) else {
                all.unbounded += 1;
                continue;
            };
            let exact = scalar::round(self.elem, wanted);
            let error = if bound == 0.0 { got - exact } else { got - wanted };
            let agrees = got == exact || got.is_nan() && wanted.is_nan();
            let ratio = if agrees { 0.0 } else { error.abs() / bound };
            if ratio.is_nan() || ratio > 1.0 {
                let (output, index) = (self.name.clone(), i);
                return Err(CheckError::Wrong { output, index, found: got, wanted, bound });
            }
            all.worst = all.worst.max(ratio);
            all.compared += 1;
        }
        Ok(all)
    }
}

/// How far a stored element may be from the exact value; `None` where nothing is known. 0 means every bit.
fn bound(elem: Elem, cell: Cell, wanted: f64, slack: f64) -> Option<f64> {
    match cell {
        Cell::Sure(_, sure) => sure.then_some(0.0),
        Cell::Float(x) if x.error == 0.0 => Some(0.0),
        Cell::Float(x) => {
            let computed = slack * x.error;
            let reach = wanted.abs() + computed;
            let known = computed.is_finite() && wanted.is_finite() && reach < largest(elem);
            known.then(|| computed + unit(elem) * reach + smallest(elem))
        }
    }
}

/// Beyond this, an element may be stored as infinite.
fn largest(elem: Elem) -> f64 {
    match elem {
        Elem::F16 => 65_504.0,
        Elem::F64 => f64::MAX,
        _ => f64::from(f32::MAX) * 0.99,
    }
}

/// Spacing of the least numbers, of which some of a computation may be rounded to.
fn smallest(elem: Elem) -> f64 {
    match elem {
        Elem::F16 => 2f64.powi(-24),
        Elem::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}
