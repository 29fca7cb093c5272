//! Calls in parts of their rows: what one part sends is on its way while the next is computed.

use std::ops::Range;

use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::shard::independent_axes;

use super::Group;
use crate::bind::Binding;
use crate::execute::Sink;
use crate::{Error, Tensor};

/// How the rows of a call are divided.
pub(super) struct Division {
    /// An axis over which every row is computed by itself.
    axis: Axis,
    /// The indices of each part.
    ranges: Vec<Range<usize>>,
}

/// The tensors of a part: views of those of the call.
pub(super) struct Part {
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Option<Tensor>>,
    /// The size of every axis of the program.
    sizes: Vec<usize>,
}

impl Division {
    /// The parts that a group asks for. None where the call has no such axis, or a rank has no elements.
    pub(super) fn of(program: &Program, binding: &Binding<'_>, shards: &[usize], group: &Group) -> Option<Division> {
        let parts = group.parts();
        if parts == 1 || shards.contains(&0) {
            return None;
        }
        let size = |axis: Axis| binding.sizes[axis.0 as usize];
        let axis = independent_axes(program).into_iter().find(|axis| size(*axis) >= parts)?;
        let border = |part: usize| (size(axis) as u128 * part as u128 / parts as u128) as usize;
        Some(Division { axis, ranges: (0..parts).map(|part| border(part)..border(part + 1)).collect() })
    }

    /// The tensors of every part.
    pub(super) fn parts(
        &self,
        program: &Program,
        binding: &Binding<'_>,
        inputs: &[Option<&Tensor>],
        outputs: &[Option<Tensor>],
    ) -> Result<Vec<Part>, Error> {
        let part = |range: &Range<usize>| {
            let input = |(k, tensor): (usize, &Option<&Tensor>)| self.view(*tensor, &program.params[k].axes, range);
            let output =
                |(k, tensor): (usize, &Option<Tensor>)| self.view(tensor.as_ref(), &program.outputs[k].axes, range);
            let inputs = inputs.iter().enumerate().map(input).collect::<Result<_, _>>()?;
            let outputs = outputs.iter().enumerate().map(output).collect::<Result<_, _>>()?;
            let mut sizes = binding.sizes.clone();
            sizes[self.axis.0 as usize] = range.len();
            Ok(Part { inputs, outputs, sizes })
        };
        self.ranges.iter().map(part).collect()
    }

    /// The part of a tensor with these axes; all of it if it does not have the axis.
    fn view(&self, tensor: Option<&Tensor>, axes: &[Axis], range: &Range<usize>) -> Result<Option<Tensor>, Error> {
        let Some(tensor) = tensor else { return Ok(None) };
        let along = axes.iter().position(|axis| *axis == self.axis);
        along.map_or_else(|| Ok(tensor.clone()), |along| tensor.slice(along, range.clone())).map(Some)
    }
}

impl Part {
    pub(super) fn inputs(&self) -> Vec<Option<&Tensor>> {
        self.inputs.iter().map(Option::as_ref).collect()
    }

    pub(super) fn sinks(&self) -> Vec<Sink<'_>> {
        self.outputs.iter().map(|output| output.as_ref().map_or(Sink::Skip, Sink::Into)).collect()
    }

    /// The sizes of the part, with the type and the place of the whole.
    pub(super) fn binding<'t>(&self, whole: &Binding<'t>) -> Binding<'t> {
        Binding { sizes: self.sizes.clone(), elem: whole.elem, home: whole.home }
    }
}
