//! Calls on the CPU by the interpreter.

use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data, Mode, Order, Precision, interpret_sized};
use oplus_dsl::ir::{Axis, Program};

use crate::Error;
use crate::host::{CpuView, CpuViewMut};
use crate::layout::Layout;

/// Runs an instantiated program.
pub(crate) fn run(
    program: &Program,
    sizes: &[usize],
    inputs: &[CpuView<'_>],
    outputs: &mut [CpuViewMut<'_>],
) -> Result<(), Error> {
    let failed = |reason: String| Error::Plan { kernel: program.name.clone(), reason };
    let shape = |axes: &[Axis]| axes.iter().map(|a| sizes[a.0 as usize]).collect::<Vec<_>>();
    let arrays: Vec<Option<Array>> =
        program.params.iter().zip(inputs).map(|(p, view)| Some(load(view, shape(&p.axes)))).collect();
    let axis_sizes: Vec<(Axis, usize)> = sizes.iter().enumerate().map(|(a, &n)| (Axis(a as u32), n)).collect();
    let mode = Mode { precision: Precision::Storage, order: Order::Sequential };
    let results = interpret_sized(program, &arrays, &axis_sizes, mode).map_err(|e| failed(e.to_string()))?;
    for (array, view) in results.iter().zip(outputs) {
        store(array, view);
    }
    Ok(())
}

/// The elements of a view in row-major order.
fn places(shape: &[usize], strides: &[i64], offset: usize) -> Vec<usize> {
    let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset };
    let mut places = Vec::new();
    layout.for_each_run(|at, n| places.extend(at..at + n));
    places
}

fn load(view: &CpuView<'_>, shape: Vec<usize>) -> Array {
    let places = places(&shape, view.strides, view.offset);
    macro_rules! read {
        ($ty:ty, $f:expr) => {{
            let all: &[$ty] = bytemuck::cast_slice(view.bytes);
            places.iter().map(|&at| $f(all[at])).collect()
        }};
    }
    let data = match view.elem {
        Elem::F64 => Data::Float(read!(f64, |x| x)),
        Elem::F32 | Elem::Call => Data::Float(read!(f32, f64::from)),
        Elem::Bf16 => Data::Float(read!(half::bf16, half::bf16::to_f64)),
        Elem::F16 => Data::Float(read!(half::f16, half::f16::to_f64)),
        Elem::I32 => Data::Int(read!(i32, i64::from)),
        Elem::U32 => Data::Int(read!(u32, i64::from)),
        Elem::I64 => Data::Int(read!(i64, |x| x)),
        Elem::U64 => Data::Int(read!(u64, |x| x as i64)),
        Elem::Bool => Data::Bool(read!(u8, |x| x != 0)),
    };
    Array { sizes: shape, data }
}

fn store(array: &Array, view: &mut CpuViewMut<'_>) {
    let places = places(&array.sizes, view.strides, view.offset);
    macro_rules! write {
        ($ty:ty, $values:expr, $f:expr) => {{
            let all: &mut [$ty] = bytemuck::cast_slice_mut(view.bytes);
            places.iter().zip($values).for_each(|(&at, x)| all[at] = $f(*x));
        }};
    }
    match (&array.data, view.elem) {
        (Data::Float(xs), Elem::F64) => write!(f64, xs, |x| x),
        (Data::Float(xs), Elem::Bf16) => write!(half::bf16, xs, half::bf16::from_f64),
        (Data::Float(xs), Elem::F16) => write!(half::f16, xs, half::f16::from_f64),
        (Data::Float(xs), _) => write!(f32, xs, |x| x as f32),
        (Data::Int(xs), Elem::I32) => write!(i32, xs, |x| x as i32),
        (Data::Int(xs), Elem::U32) => write!(u32, xs, |x| x as u32),
        (Data::Int(xs), Elem::U64) => write!(u64, xs, |x| x as u64),
        (Data::Int(xs), _) => write!(i64, xs, |x| x),
        (Data::Bool(xs), _) => write!(u8, xs, u8::from),
    }
}
