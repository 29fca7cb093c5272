//! The part of a large case that is compared with the CPU.

use oplus::Tensor;
use oplus_dsl::ir::{Axis, Op, Program};

/// Points of all axes together that the CPU computes within seconds: a case of more is compared in part.
const MOST: u128 = 1 << 32;

/// How many indices of some axes are compared; of the others, all.
pub(super) struct Sample(Vec<(Axis, usize)>);

impl Sample {
    /// The sample of a call with these first parameters: no more than [`MOST`] points, as far as axes are [free](is_free).
    pub(super) fn new(program: &Program, shapes: &[Vec<usize>]) -> Sample {
        let sizes: Vec<(Axis, usize)> = (0..program.axes.len() as u32)
            .filter_map(|axis| Some((Axis(axis), size(program, shapes, Axis(axis))?)))
            .collect();
        let mut points: u128 = sizes.iter().map(|&(_, size)| size as u128).product();
        let mut kept = vec![];
        for (axis, size) in sizes {
            if points > MOST && is_free(program, shapes.len(), axis) {
                let keep = (size as u128 * MOST / points).max(1) as usize;
                points = points / size as u128 * keep as u128;
                kept.push((axis, keep));
            }
        }
        Sample(kept)
    }

    /// The sampled part of a tensor over these axes.
    pub(super) fn of(&self, tensor: &Tensor, axes: &[Axis]) -> Result<Tensor, oplus::Error> {
        self.0.iter().try_fold(tensor.clone(), |tensor, &(axis, keep)| match axes.iter().position(|a| *a == axis) {
            Some(place) => tensor.slice(place, 0..keep),
            None => Ok(tensor),
        })
    }
}

/// The size of an axis, if one of the parameters has it.
fn size(program: &Program, shapes: &[Vec<usize>], axis: Axis) -> Option<usize> {
    let of = |(param, shape): (&oplus_dsl::ir::Param, &Vec<usize>)| {
        param.axes.iter().position(|a| *a == axis).map(|place| shape[place])
    };
    program.params.iter().zip(shapes).find_map(of)
}

/// Whether every index of an axis is a call of its own: all tensors have the axis, and no operation goes along it.
fn is_free(program: &Program, given: usize, axis: Axis) -> bool {
    let everywhere = program.params[..given].iter().all(|p| p.axes.contains(&axis))
        && program.outputs.iter().all(|o| o.axes.contains(&axis));
    everywhere && program.nodes.iter().all(|node| along(&node.op) != Some(axis))
}

/// The axis that an operation goes along, or counts.
fn along(op: &Op) -> Option<Axis> {
    match op {
        Op::Index(axis) | Op::Size(axis) => Some(*axis),
        Op::Reduce { axis, .. } | Op::Scan { axis, .. } | Op::Shift { axis, .. } => Some(*axis),
        Op::Last { axis, .. } | Op::First { axis, .. } | Op::Starts { axis, .. } => Some(*axis),
        Op::Gather { axis, .. } => Some(*axis),
        Op::MatrixScan(scan) => Some(scan.axis),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus::models;

    fn sample(program: &Program, shapes: &[&[usize]]) -> Sample {
        Sample::new(program, &shapes.iter().map(|s| s.to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn batches_and_heads_of_attention_are_calls_of_their_own() {
        let program = models::attention::kernel().program().unwrap();
        let keys = [4, 16, 4096, 128];
        let Sample(kept) = sample(program, &[&[4, 16, 1, 4096, 128], &keys, &keys]);
        let named: Vec<_> = kept.iter().map(|&(axis, keep)| (program.axis_name(axis), keep)).collect();
        assert_eq!(named, [("B", 1), ("G", 1)]);
        let query = Tensor::zeros(oplus::Elem::Bf16, &[4, 16, 1, 3, 2], &oplus::Device::Cpu).unwrap();
        let part = Sample(kept).of(&query, &program.params[0].axes).unwrap();
        assert_eq!(part.shape(), [1, 1, 1, 3, 2]);
    }

    #[test]
    fn what_is_summed_over_and_scanned_is_whole() {
        let program = models::ssd::kernel().program().unwrap();
        let groups: &[usize] = &[8, 65_536, 1, 128];
        let x: &[usize] = &[8, 65_536, 1, 80, 64];
        let Sample(kept) = sample(program, &[x, &x[..4], &[1, 80], groups, groups]);
        let named: Vec<_> = kept.iter().map(|&(axis, keep)| (program.axis_name(axis), keep)).collect();
        assert_eq!(named, [("G", 1)], "the rates A have no batch");
    }

    #[test]
    fn small_cases_are_whole() {
        let program = models::attention::kernel().program().unwrap();
        let keys = [1, 2, 128, 64];
        assert!(sample(program, &[&[1, 2, 1, 128, 64], &keys, &keys]).0.is_empty());
    }
}
