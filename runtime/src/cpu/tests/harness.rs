//! Running a program on the engine and on the interpreter, and comparing.

use half::{bf16, f16};
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data as Numbers, Mode, Order, Precision, interpret_sized};
use oplus_dsl::ir::{Axis, Op, Program, Unary};

use crate::cpu::{Compiled, Data, DataMut, View, ViewMut};

/// Elements of a tensor, in its own type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Memory {
    F64(Vec<f64>),
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Bool(Vec<u8>),
}

/// How the elements of a tensor are laid out in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strides {
    /// The last axis fastest, without gaps.
    Dense,
    /// The first axis fastest, backwards, with gaps.
    Scattered,
}

impl Strides {
    /// Strides, the element of index 0, 0, … and the number of elements of the memory.
    pub(super) fn of(self, sizes: &[usize]) -> (Vec<i64>, usize, usize) {
        let mut strides = vec![0; sizes.len()];
        let mut len = 1;
        let order: Vec<usize> = match self {
            Strides::Dense => (0..sizes.len()).rev().collect(),
            Strides::Scattered => (0..sizes.len()).collect(),
        };
        let gap = if self == Strides::Dense { 1 } else { 2 };
        let mut offset = 0;
        for k in order {
            strides[k] = len as i64 * gap;
            len = if self == Strides::Dense { len * sizes[k] } else { len * 2 * sizes[k].max(1) + 1 };
            if self == Strides::Scattered && k % 2 == 0 {
                offset += strides[k] as usize * sizes[k].saturating_sub(1);
                strides[k] = -strides[k];
            }
        }
        (strides, offset, len)
    }

    /// Calls `visit` with the place of every element, in the order of an array.
    fn each(self, sizes: &[usize], mut visit: impl FnMut(usize, usize)) {
        let (strides, offset, _) = self.of(sizes);
        for number in 0..sizes.iter().product() {
            let (mut rest, mut at) = (number, offset as i64);
            for k in (0..sizes.len()).rev() {
                at += (rest % sizes[k]) as i64 * strides[k];
                rest /= sizes[k];
            }
            visit(number, at as usize);
        }
    }
}

macro_rules! per_type {
    ($kind:ident, $memory:expr, $all:ident => $body:expr) => {
        match $memory {
            Memory::F64($all) => $kind::F64($body),
            Memory::F32($all) => $kind::F32($body),
            Memory::Bf16($all) => $kind::Bf16($body),
            Memory::F16($all) => $kind::F16($body),
            Memory::I32($all) => $kind::I32($body),
            Memory::I64($all) => $kind::I64($body),
            Memory::U32($all) => $kind::U32($body),
            Memory::U64($all) => $kind::U64($body),
            Memory::Bool($all) => $kind::Bool($body),
        }
    };
}

impl Memory {
    pub(super) fn zeroed(elem: Elem, n: usize) -> Memory {
        match elem {
            Elem::F64 | Elem::Call | Elem::State | Elem::Wide => Memory::F64(vec![0.0; n]),
            Elem::F32 => Memory::F32(vec![0.0; n]),
            Elem::Bf16 => Memory::Bf16(vec![bf16::ZERO; n]),
            Elem::F16 => Memory::F16(vec![f16::ZERO; n]),
            Elem::I32 => Memory::I32(vec![0; n]),
            Elem::I64 => Memory::I64(vec![0; n]),
            Elem::U32 => Memory::U32(vec![0; n]),
            Elem::U64 => Memory::U64(vec![0; n]),
            Elem::Bool => Memory::Bool(vec![0; n]),
        }
    }

    fn set(&mut self, at: usize, numbers: &Numbers, i: usize) {
        match (self, numbers) {
            (Memory::F64(all), Numbers::Float(x)) => all[at] = x[i],
            (Memory::F32(all), Numbers::Float(x)) => all[at] = x[i] as f32,
            (Memory::Bf16(all), Numbers::Float(x)) => all[at] = bf16::from_f32(x[i] as f32),
            (Memory::F16(all), Numbers::Float(x)) => all[at] = f16::from_f32(x[i] as f32),
            (Memory::I32(all), Numbers::Int(x)) => all[at] = x[i] as i32,
            (Memory::I64(all), Numbers::Int(x)) => all[at] = x[i],
            (Memory::U32(all), Numbers::Int(x)) => all[at] = x[i] as u32,
            (Memory::U64(all), Numbers::Int(x)) => all[at] = x[i] as u64,
            (Memory::Bool(all), Numbers::Bool(x)) => all[at] = u8::from(x[i]),
            other => panic!("{other:?}"),
        }
    }

    fn numbers(&self, sizes: &[usize], strides: Strides) -> Numbers {
        let mut places = vec![];
        strides.each(sizes, |_, at| places.push(at));
        let places = places.iter();
        match self {
            Memory::F64(all) => Numbers::Float(places.map(|at| all[*at]).collect()),
            Memory::F32(all) => Numbers::Float(places.map(|at| f64::from(all[*at])).collect()),
            Memory::Bf16(all) => Numbers::Float(places.map(|at| all[*at].to_f64()).collect()),
            Memory::F16(all) => Numbers::Float(places.map(|at| all[*at].to_f64()).collect()),
            Memory::I32(all) => Numbers::Int(places.map(|at| i64::from(all[*at])).collect()),
            Memory::I64(all) => Numbers::Int(places.map(|at| all[*at]).collect()),
            Memory::U32(all) => Numbers::Int(places.map(|at| i64::from(all[*at])).collect()),
            Memory::U64(all) => Numbers::Int(places.map(|at| all[*at] as i64).collect()),
            Memory::Bool(all) => Numbers::Bool(places.map(|at| all[*at] != 0).collect()),
        }
    }

    fn view(&self, strides: Strides, sizes: &[usize]) -> View<'_> {
        let (strides, offset, _) = strides.of(sizes);
        View { data: per_type!(Data, self, all => all), offset, strides }
    }

    fn view_mut(&mut self, strides: Strides, sizes: &[usize]) -> ViewMut<'_> {
        let (strides, offset, _) = strides.of(sizes);
        ViewMut { data: per_type!(DataMut, self, all => all), offset, strides }
    }
}

fn shape(axes: &[Axis], sizes: &[usize]) -> Vec<usize> {
    axes.iter().map(|axis| sizes[axis.0 as usize]).collect()
}

/// The outputs of a program on the engine.
fn run(program: &Program, sizes: &[usize], inputs: &[Option<Array>], strides: Strides, ordered: bool) -> Vec<Array> {
    run_with(&Compiled::new(program, ordered).unwrap(), program, sizes, inputs, strides)
}

/// The outputs of a compiled program.
pub(super) fn run_with(
    compiled: &Compiled,
    program: &Program,
    sizes: &[usize],
    inputs: &[Option<Array>],
    strides: Strides,
) -> Vec<Array> {
    let memories: Vec<Option<Memory>> = program
        .params
        .iter()
        .zip(inputs)
        .map(|(param, input)| {
            let array = input.as_ref()?;
            let mut memory = Memory::zeroed(param.elem, strides.of(&array.sizes).2);
            strides.each(&array.sizes, |i, at| memory.set(at, &array.data, i));
            Some(memory)
        })
        .collect();
    let shapes: Vec<Vec<usize>> = program.outputs.iter().map(|output| shape(&output.axes, sizes)).collect();
    let results = program.outputs.iter().zip(&shapes);
    let mut results: Vec<Memory> =
        results.map(|(output, shape)| Memory::zeroed(output.elem, strides.of(shape).2)).collect();
    let views: Vec<Option<View<'_>>> = program
        .params
        .iter()
        .zip(&memories)
        .map(|(param, memory)| memory.as_ref().map(|memory| memory.view(strides, &shape(&param.axes, sizes))))
        .collect();
    let mut targets: Vec<ViewMut<'_>> =
        results.iter_mut().zip(&shapes).map(|(memory, shape)| memory.view_mut(strides, shape)).collect();
    compiled.run(sizes, &views, &mut targets).unwrap();
    results.iter().zip(shapes).map(|(memory, sizes)| Array { data: memory.numbers(&sizes, strides), sizes }).collect()
}

/// Asserts that the engine agrees with the interpreter.
///
/// Integers and bools must be equal. The error of floats is bounded by that of two other orders of evaluation in the
/// storage type, and by what elementary functions may be off: with e the exact outputs, s and t those of the sequential
/// and the tree-shaped interpreter in the storage type, and ε the spacing of the output's type at 1,
/// |found − e| ≤ 8·max(|s − e|, |t − e|) + 16·ε·max|e|, the maxima over the whole output. In order, and without elementary
/// functions, it is s to the bit.
pub(super) fn check(program: &Program, sizes: &[usize], inputs: &[Option<Array>], strides: Strides) {
    let (found, ordered) = (run(program, sizes, inputs, strides, false), run(program, sizes, inputs, strides, true));
    let axes: Vec<(Axis, usize)> = sizes.iter().enumerate().map(|(i, n)| (Axis(i as u32), *n)).collect();
    let interpret = |precision, order| interpret_sized(program, inputs, &axes, Mode { precision, order }).unwrap();
    let stored = interpret(Precision::Storage, Order::Sequential);
    let tree = interpret(Precision::Storage, Order::Tree);
    let rounded: Vec<Option<Array>> = inputs.to_vec();
    let exact = interpret_sized(program, &rounded, &axes, Mode::default()).unwrap();
    for (k, output) in program.outputs.iter().enumerate() {
        let what = || format!("output `{}` at sizes {sizes:?}, {strides:?}, of\n{program}", output.name);
        assert_eq!(found[k].sizes, stored[k].sizes, "{}", what());
        for found in [&found[k].data, &ordered[k].data] {
            match (found, &stored[k].data, &tree[k].data, &exact[k].data) {
                (Numbers::Float(found), Numbers::Float(stored), Numbers::Float(tree), Numbers::Float(exact)) => {
                    close(output.elem, found, [stored, tree, exact], &what);
                }
                (found, stored, ..) => assert_eq!(found, stored, "{}", what()),
            }
        }
        if let (Numbers::Float(found), Numbers::Float(stored), true) =
            (&ordered[k].data, &stored[k].data, is_arithmetic(program))
        {
            let bits = |all: &[f64]| all.iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect::<Vec<_>>();
            assert_eq!(bits(found), bits(stored), "in order, {}", what());
        }
    }
}

/// Whether a program has no elementary functions.
fn is_arithmetic(program: &Program) -> bool {
    let bodies = program.operators.iter().flat_map(|operator| &operator.body);
    use Unary::{Abs, Floor, Neg, Not, Recip, Relu, Sign, Sqrt};
    let is_simple = |op: &Op| match op {
        Op::Unary(op, _) => matches!(op, Abs | Floor | Neg | Not | Recip | Relu | Sign | Sqrt),
        _ => true,
    };
    program.nodes.iter().chain(bodies).all(|node| is_simple(&node.op))
}

fn close(elem: Elem, found: &[f64], [stored, tree, exact]: [&[f64]; 3], what: &dyn Fn() -> String) {
    let finite = |x: &f64| x.is_finite();
    let largest = exact.iter().chain(stored).copied().filter(finite).fold(0.0, |m: f64, x| m.max(x.abs()));
    let off = |found: &[f64]| {
        let errors = found.iter().zip(exact).map(|(x, e)| (x - e).abs());
        errors.filter(finite).fold(0.0, f64::max)
    };
    let epsilon = match elem {
        Elem::F32 => f64::from(f32::EPSILON),
        Elem::Bf16 => bf16::EPSILON.to_f64(),
        Elem::F16 => f16::EPSILON.to_f64(),
        _ => f64::EPSILON,
    };
    let bound = 8.0 * off(stored).max(off(tree)) + 16.0 * epsilon * largest;
    for (i, ((found, stored), exact)) in found.iter().zip(stored).zip(exact).enumerate() {
        if !stored.is_finite() || !exact.is_finite() {
            let same = found == stored || found.is_nan() && stored.is_nan() || found == exact || exact.is_finite();
            assert!(same, "[{i}]: {found} against {stored}, exactly {exact}, in {}", what());
            continue;
        }
        assert!(
            (found - exact).abs() <= bound,
            "[{i}]: {found} against {stored}, exactly {exact}, ±{bound:e}, in {}",
            what()
        );
    }
}
