//! Models at a point: inputs and cotangents by name, run by the interpreter.

use std::collections::HashMap;
use std::sync::LazyLock;

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, Order, Precision, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;

/// Tensors by name.
pub(crate) type Named = HashMap<String, Array>;

/// Sizes of axes by name.
pub(crate) type Sizes<'a> = &'a [(&'a str, usize)];

/// The model of a name.
pub(crate) fn model(name: &str) -> Program {
    static MODELS: LazyLock<Vec<Program>> = LazyLock::new(oplus_front::model_programs);
    MODELS.iter().find(|program| program.name == name).expect("a standard model").clone()
}

/// A convolution by shifts before a selective scan: 0, with parameters for what the shifts keep; 1, without.
pub(crate) fn convolved_scan(k: usize) -> Program {
    let text = include_str!("convolved_scan.txt").parse().expect("tokens");
    oplus_front::programs(text).unwrap_or_else(|mistakes| panic!("{mistakes}")).swap_remove(k)
}

/// The model of a name in calls of `f64`.
pub(crate) fn in_f64(name: &str) -> Program {
    model(name).instantiate(Elem::F64)
}

/// Numbers as calls of a type hold them, combined in this order.
pub(crate) fn stored(order: Order) -> Mode {
    Mode { precision: Precision::Storage, order }
}

/// Random floats.
pub(crate) fn numbers(n: usize, rng: &mut Rng, low: f64, high: f64) -> Vec<f64> {
    (0..n).map(|_| rng.between(low, high)).collect()
}

/// The shape of a tensor over these axes.
pub(crate) fn shape(program: &Program, axes: &[Axis], sizes: Sizes<'_>) -> Vec<usize> {
    let size = |axis: &Axis| {
        let name = program.axis_name(*axis);
        sizes.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no size for {name}")).1
    };
    axes.iter().map(size).collect()
}

/// Random values in (−1, 1) for every parameter that `wanted` names; truth values are any, integers are segments' offsets in order.
pub(crate) fn inputs(program: &Program, sizes: Sizes<'_>, seed: u64, wanted: impl Fn(&Param) -> bool) -> Named {
    let mut rng = Rng::new(seed);
    let end = sizes.iter().find(|(name, _)| *name == "T").map_or(0, |(_, n)| *n);
    let mut array = |param: &Param| {
        let sizes = shape(program, &param.axes, sizes);
        let n = sizes.iter().product();
        let data = match param.elem {
            elem if elem.is_float() => Data::Float(numbers(n, &mut rng, -1.0, 1.0)),
            Elem::Bool => Data::Bool((0..n).map(|_| rng.below(2) == 1).collect()),
            _ => Data::Int(offsets(n, end, &mut rng)),
        };
        Array { sizes, data }
    };
    program.params.iter().filter(|param| wanted(param)).map(|p| (p.name.clone(), array(p))).collect()
}

/// A sorted list from 0 to `end`, with empty segments and segments of one element among them.
fn offsets(n: usize, end: usize, rng: &mut Rng) -> Vec<i64> {
    let mut inner: Vec<i64> = (0..n.saturating_sub(2)).map(|_| rng.below(end + 1) as i64).collect();
    inner.sort_unstable();
    let all = [vec![0], inner, vec![end as i64]].concat();
    all[..n.min(all.len())].to_vec()
}

/// Random cotangents of the outputs, by the outputs' names.
pub(crate) fn cotangents(outputs: &Named, seed: u64) -> Named {
    let mut names: Vec<&String> = outputs.keys().collect();
    names.sort();
    let mut rng = Rng::new(seed);
    let mut bar = |name: &String| {
        let sizes = &outputs[name].sizes;
        Array::floats(sizes, numbers(sizes.iter().product(), &mut rng, -1.0, 1.0))
    };
    names.into_iter().map(|name| (name.clone(), bar(name))).collect()
}

/// The outputs of a program.
pub(crate) fn run(program: &Program, inputs: &Named, sizes: Sizes<'_>, mode: Mode) -> Named {
    let given: Vec<_> = program.params.iter().map(|param| inputs.get(&param.name).cloned()).collect();
    let sizes: Vec<_> = sizes.iter().filter_map(|(name, n)| Some((program.axis(name)?, *n))).collect();
    let outputs = interpret_sized(program, &given, &sizes, mode)
        .unwrap_or_else(|error| panic!("{}: {error}\n{program}", program.name));
    program.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect()
}

/// The gradients of a program's float parameters, by their names.
pub(crate) fn gradients(program: &Program, given: (&Named, &Named, &Named), sizes: Sizes<'_>, mode: Mode) -> Named {
    let (inputs, outputs, cotangents) = given;
    let bars = cotangents.iter().map(|(name, bar)| (format!("{name}.bar"), bar.clone()));
    let all: Named = inputs.clone().into_iter().chain(outputs.clone()).chain(bars).collect();
    let backward = adjoint(program).expect("a differentiable model");
    let gradients = run(&backward, &all, sizes, mode);
    let name = |name: String| name.strip_suffix(".bar").map(str::to_owned).expect("the gradient of a parameter");
    gradients.into_iter().map(|(of, bar)| (name(of), bar)).collect()
}

/// The elements of a float array.
pub(crate) fn floats(array: &Array) -> &[f64] {
    array.as_floats().expect("floats")
}

/// Asserts that floats agree up to a bound relative to the largest.
pub(crate) fn close(what: &str, found: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (k, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= bound * largest, "{what}, element {k}: {x} instead of {y}");
    }
}
