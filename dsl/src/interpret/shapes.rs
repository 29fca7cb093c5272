//! Sizes of axes, and where the elements of a value lie.

use crate::ir::{Axis, AxisSet, Param, Program};

use super::{Array, InterpretError};

/// The most elements a value may have.
pub(super) const MAX_ELEMENTS: usize = 1 << 32;

/// The size of every axis.
#[derive(Clone, Debug)]
pub(super) struct Shapes(Vec<usize>);

/// A size and what it is from, for messages.
type Bound = Option<(usize, String)>;

impl Shapes {
    /// The sizes that the inputs and the list give to the axes.
    pub(super) fn bind(
        program: &Program,
        inputs: &[Option<Array>],
        sizes: &[(Axis, usize)],
    ) -> Result<Shapes, InterpretError> {
        if inputs.len() != program.params.len() {
            return Err(InterpretError::Count { expected: program.params.len(), given: inputs.len() });
        }
        let mut bound: Vec<Bound> = vec![None; program.axes.len()];
        for (axis, size) in sizes.iter().filter(|(axis, _)| (axis.0 as usize) < program.axes.len()) {
            bind(program, &mut bound, *axis, *size, "the sizes given".to_owned())?;
        }
        for (param, input) in program.params.iter().zip(inputs) {
            let Some(array) = input else { continue };
            check_rank(program, param, array)?;
            for (axis, size) in param.axes.iter().zip(&array.sizes) {
                bind(program, &mut bound, *axis, *size, format!("`{}`", param.name))?;
            }
        }
        for (param, input) in program.params.iter().zip(inputs) {
            check_data(param, input.as_ref())?;
        }
        let mut bound: Vec<Option<usize>> = bound.into_iter().map(|bound| Some(bound?.0)).collect();
        program.complete(&mut bound)?;
        let size =
            |(axis, bound): (&String, Option<usize>)| bound.ok_or(InterpretError::Unbound { axis: axis.clone() });
        program.axes.iter().zip(bound).map(size).collect::<Result<_, _>>().map(Shapes)
    }

    pub(super) fn size(&self, axis: Axis) -> usize {
        self.0[axis.0 as usize]
    }

    /// The sizes of some axes, in order.
    pub(super) fn sizes(&self, axes: impl IntoIterator<Item = Axis>) -> Vec<usize> {
        axes.into_iter().map(|axis| self.size(axis)).collect()
    }

    /// How many indices the axes have together.
    pub(super) fn count(&self, axes: AxisSet, what: impl FnOnce() -> String) -> Result<usize, InterpretError> {
        let sizes = self.sizes(axes.iter());
        product(&sizes).ok_or_else(|| InterpretError::TooLarge { what: what() })
    }

    /// For each of `axes`, how far apart neighbours lie in a dense array over `own` (0 for axes it lacks).
    pub(super) fn strides(&self, own: &[Axis], axes: impl IntoIterator<Item = Axis>) -> Vec<usize> {
        axes.into_iter().map(|axis| self.stride(own, axis)).collect()
    }

    /// How far apart neighbours along an axis lie in a dense array over `own`; 0 if it lacks the axis.
    pub(super) fn stride(&self, own: &[Axis], axis: Axis) -> usize {
        let place = own.iter().position(|a| *a == axis);
        place.map_or(0, |d| own[d + 1..].iter().map(|a| self.size(*a)).product())
    }
}

fn product(sizes: &[usize]) -> Option<usize> {
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size)).filter(|n| *n <= MAX_ELEMENTS)
}

fn bind(program: &Program, bound: &mut [Bound], axis: Axis, size: usize, from: String) -> Result<(), InterpretError> {
    match &bound[axis.0 as usize] {
        Some((first, tensor)) if *first != size => Err(InterpretError::Size {
            axis: program.axis_name(axis).to_owned(),
            tensor: tensor.clone(),
            size: *first,
            other: from,
            other_size: size,
        }),
        Some(_) => Ok(()),
        None => {
            bound[axis.0 as usize] = Some((size, from));
            Ok(())
        }
    }
}

fn check_rank(program: &Program, param: &Param, array: &Array) -> Result<(), InterpretError> {
    if array.sizes.len() == param.axes.len() {
        return Ok(());
    }
    let axes = param.axes.iter().map(|axis| program.axis_name(*axis)).collect::<Vec<_>>().join(", ");
    Err(InterpretError::Rank { param: param.name.clone(), axes, given: array.sizes.len() })
}

fn check_data(param: &Param, input: Option<&Array>) -> Result<(), InterpretError> {
    let name = || param.name.clone();
    let Some(array) = input else {
        return if param.default.is_some() { Ok(()) } else { Err(InterpretError::Missing { param: name() }) };
    };
    let Some(expected) = product(&array.sizes) else {
        return Err(InterpretError::TooLarge { what: format!("`{}`", param.name) });
    };
    if array.data.len() != expected {
        return Err(InterpretError::Length { param: name(), expected, given: array.data.len() });
    }
    if !array.data.holds(param.elem.value()) {
        return Err(InterpretError::Kind { param: name(), elem: param.elem, given: array.data.kind() });
    }
    Ok(())
}
