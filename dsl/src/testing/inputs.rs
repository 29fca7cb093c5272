//! Random inputs for programs.

use crate::elem::Ty;
use crate::interpret::{Array, Data};
use crate::ir::{AxisSet, Param, Program};
use crate::rng::Rng;

/// Names of parameters that are offsets.
const OFFSETS: [&str; 2] = ["offsets", "cu_seqlens"];

/// Random inputs for a program whose axes have these sizes: floats in [−1, 1], whole numbers below 8, offsets in order
/// (for integer parameters named `offsets` or `cu_seqlens`, along L or T). Parameters with a default are left out half of the time, unless only they
/// have an axis.
pub fn inputs(program: &Program, sizes: &[usize], seed: u64) -> Vec<Option<Array>> {
    let mut rng = Rng::new(seed);
    let bound: AxisSet = required(program).flat_map(|p| p.axes.iter().copied()).collect();
    let mut input = |param: &Param| {
        let optional = param.default.is_some() && bound.contains_all(param.axes.iter().copied().collect());
        if optional && rng.once_in(2) { None } else { Some(array(program, param, sizes, &mut rng)) }
    };
    program.params.iter().map(&mut input).collect()
}

fn required(program: &Program) -> impl Iterator<Item = &Param> {
    program.params.iter().filter(|p| p.default.is_none())
}

fn array(program: &Program, param: &Param, sizes: &[usize], rng: &mut Rng) -> Array {
    let shape: Vec<usize> = param.axes.iter().map(|axis| sizes[axis.0 as usize]).collect();
    let n = shape.iter().product();
    let data = match param.elem.value() {
        Ty::Bool => Data::Bool((0..n).map(|_| rng.once_in(3)).collect()),
        ty if ty.is_float() => Data::Float((0..n).map(|_| rng.between(-1.0, 1.0)).collect()),
        _ if OFFSETS.contains(&param.name.as_str()) => {
            let end = program.axis("L").or(program.axis("T")).map_or(0, |axis| sizes[axis.0 as usize]);
            let mut offsets: Vec<i64> = (0..n).map(|_| rng.below(end + 1) as i64).collect();
            offsets.sort_unstable();
            Data::Int(offsets)
        }
        _ => Data::Int((0..n).map(|_| rng.below(8) as i64).collect()),
    };
    Array { sizes: shape, data }
}
