//! The expected outputs of a call.

use oplus_dsl::decay::decays;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Output, Program};
use oplus_dsl::rebase::rebase;
use oplus_dsl::{Elem, scalar};

use super::CheckError;
use super::bound::{Cell, Number, ROUNDING, evaluate, unit};

/// An expected output, with bounds.
pub struct Expected {
    name: String,
    elem: Elem,
    values: Array,
    cells: Vec<Cell>,
    /// The cells with bounds for which no number counts as whole: for schedules that round what others keep exact.
    rounded: Vec<Cell>,
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
    let program_of_kernels = decays(&rebase(program));
    let cells = evaluate(&program_of_kernels, inputs, sizes);
    let rounded = match nudged(inputs) {
        Some(nudged) if program.params.iter().any(|p| matches!(p.elem, Elem::Bf16 | Elem::F16)) => {
            evaluate(&program_of_kernels, &nudged, sizes)
        }
        _ => cells.clone(),
    };
    let all = program.outputs.iter().zip(values).zip(cells.into_iter().zip(rounded));
    let expected = |((output, values), (cells, rounded)): ((&Output, _), _)| Expected {
        name: output.name.clone(),
        elem: output.elem,
        values,
        cells,
        rounded,
    };
    Ok(all.map(expected).collect())
}

/// Inputs that are all whole numbers (or infinite, as the logarithm of a decay of 0), moved by so little that only exactness is lost; `None` if they are not.
fn nudged(inputs: &[Array]) -> Option<Vec<Array>> {
    const LITTLE: f64 = 1.0 + 1e-12;
    let floats = |array: &Array| matches!(array.data, Data::Float(_));
    let is_whole = |x: f64| x.fract() == 0.0 || x.is_infinite();
    let whole = |array: &Array| (0..array.data.len()).all(|i| is_whole(array.data.get(i).as_f64()));
    if !inputs.iter().filter(|array| floats(array)).all(whole) {
        return None;
    }
    let mut moved = inputs.to_vec();
    for array in &mut moved {
        if let Data::Float(numbers) = &mut array.data {
            numbers.iter_mut().for_each(|x| *x *= LITTLE);
        }
    }
    Some(moved)
}

impl Expected {
    /// Compares what was computed, with a tree that is `slack` times deeper than a balanced one. Where terms cancel, any element may be as far
    /// off as the least exact one.
    ///
    /// # Errors
    /// [`CheckError::Wrong`] with the first element that is beyond its bound.
    pub fn compare(&self, found: &Array, slack: f64, cancels: bool) -> Result<Agreement, CheckError> {
        let mut all = Agreement::default();
        let cells = if slack >= ROUNDING { &self.rounded } else { &self.cells };
        let errors = cells.iter().map(|cell| if let Cell::Float(x) = cell { x.error } else { 0.0 });
        let known = errors.filter(|error| error.is_finite());
        let least = if cancels { known.fold(0.0, f64::max) } else { 0.0 };
        for (i, cell) in cells.iter().enumerate() {
            let (wanted, got) = (self.values.data.get(i).as_f64(), found.data.get(i).as_f64());
            let cell = match *cell {
                Cell::Float(x) => Cell::Float(Number { error: x.error.max(least), ..x }),
                cell => cell,
            };
            let Some(bound) = bound(self.elem, cell, wanted, slack) else {
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
