//! Reverse mode against forward mode and finite differences.

use std::collections::HashMap;

use oplus_dsl::adjoint::adjoint;
use oplus_dsl::forward::tangent;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::verify::verify;

/// Sizes of axes by name.
pub(crate) type Sizes<'a> = &'a [(&'a str, usize)];

/// A program at a point.
pub(crate) struct Case<'a> {
    pub(crate) program: &'a Program,
    pub(crate) sizes: Sizes<'a>,
    pub(crate) inputs: HashMap<String, Array>,
}

/// Numbers in (−1, 1) that look random; the same for the same seed.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

impl<'a> Case<'a> {
    /// The program at random values of its parameters.
    pub(crate) fn new(program: &'a Program, sizes: Sizes<'a>, seed: u64) -> Case<'a> {
        let mut case = Case { program, sizes, inputs: HashMap::new() };
        for (k, param) in program.params.iter().enumerate() {
            let array = case.random(param, seed * 31 + k as u64);
            case.inputs.insert(param.name.clone(), array);
        }
        case
    }

    /// Sets one parameter of floats.
    pub(crate) fn with(mut self, param: &str, data: impl Into<Vec<f64>>) -> Case<'a> {
        let sizes = self.inputs[param].sizes.clone();
        self.inputs.insert(param.to_owned(), Array::floats(&sizes, data));
        self
    }

    /// Moves the parameters of these names, if there are such, into (0.5, 1.5).
    pub(crate) fn positive(mut self, params: &[&str]) -> Case<'a> {
        for param in params {
            if let Some(Data::Float(xs)) = self.inputs.get_mut(*param).map(|array| &mut array.data) {
                xs.iter_mut().for_each(|x| *x = 1.0 + *x / 2.0);
            }
        }
        self
    }

    /// Sets one parameter of integers.
    pub(crate) fn with_ints(mut self, param: &str, data: &[i64]) -> Case<'a> {
        let sizes = self.inputs[param].sizes.clone();
        self.inputs.insert(param.to_owned(), Array::ints(&sizes, data));
        self
    }

    fn sizes_of(&self, axes: &[Axis]) -> Vec<usize> {
        let size = |axis: &Axis| {
            let name = self.program.axis_name(*axis);
            self.sizes.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no size for {name}")).1
        };
        axes.iter().map(size).collect()
    }

    fn random(&self, param: &Param, seed: u64) -> Array {
        let sizes = self.sizes_of(&param.axes);
        let xs = numbers(sizes.iter().product(), seed);
        let data = match param.elem.value() {
            ty if ty.is_float() => Data::Float(xs),
            ty if ty.is_int() => Data::Int(xs.iter().map(|x| (x * 4.0) as i64).collect()),
            _ => Data::Bool(xs.iter().map(|x| *x > 0.0).collect()),
        };
        Array { sizes, data }
    }

    /// The outputs of a program with the same axes, its parameters by name; those not given take their default.
    pub(crate) fn run(&self, program: &Program, inputs: &HashMap<String, Array>) -> HashMap<String, Array> {
        let given: Vec<_> = program.params.iter().map(|p| inputs.get(&p.name).cloned()).collect();
        let sizes: Vec<_> = self.sizes.iter().filter_map(|(name, size)| Some((program.axis(name)?, *size))).collect();
        let outputs = interpret_sized(program, &given, &sizes, Mode::default()).unwrap();
        program.outputs.iter().map(|o| o.name.clone()).zip(outputs).collect()
    }

    /// The gradient of every parameter for these cotangents, by the adjoint program.
    pub(crate) fn gradients(&self, adjoint: &Program, cotangents: &HashMap<String, Array>) -> HashMap<String, Array> {
        let mut inputs = self.run(self.program, &self.inputs);
        inputs.extend(self.inputs.clone());
        inputs.extend(cotangents.iter().map(|(name, bar)| (format!("{name}.bar"), bar.clone())));
        self.run(adjoint, &inputs)
    }

    /// The Jacobian by reverse mode: per float output element, the gradient of all float parameters.
    fn reverse_jacobian(&self) -> Vec<Vec<f64>> {
        let adjoint = adjoint(self.program).unwrap();
        verify(&adjoint).unwrap();
        let outputs = self.run(self.program, &self.inputs);
        let mut rows = vec![];
        for output in self.program.outputs.iter().filter(|o| o.elem.is_float()) {
            for bar in one_hots(&outputs[&output.name]) {
                let gradients = self.gradients(&adjoint, &HashMap::from([(output.name.clone(), bar)]));
                let params = self.program.params.iter().filter(|p| p.elem.is_float());
                rows.push(params.flat_map(|p| floats(&gradients[&format!("{}.bar", p.name)])).collect());
            }
        }
        rows
    }

    /// The Jacobian by forward mode: per float parameter element, the tangents of all float outputs.
    fn forward_jacobian(&self) -> Vec<Vec<f64>> {
        let tangent = tangent(self.program).unwrap();
        verify(&tangent).unwrap();
        let mut columns = vec![];
        for param in self.program.params.iter().filter(|p| p.elem.is_float()) {
            for dot in one_hots(&self.inputs[&param.name]) {
                let mut inputs = self.inputs.clone();
                inputs.insert(format!("{}.dot", param.name), dot);
                columns.push(self.float_outputs(&self.run(&tangent, &inputs), ".dot"));
            }
        }
        columns
    }

    /// The Jacobian by central differences, column by column.
    fn difference_jacobian(&self) -> Vec<Vec<f64>> {
        let step = 1e-5;
        let mut columns = vec![];
        for param in self.program.params.iter().filter(|p| p.elem.is_float()) {
            for dot in one_hots(&self.inputs[&param.name]) {
                let at = |scale: f64| {
                    let xs = floats(&self.inputs[&param.name]);
                    let moved: Vec<f64> = xs.iter().zip(floats(&dot)).map(|(x, d)| x + scale * d).collect();
                    let mut inputs = self.inputs.clone();
                    inputs.insert(param.name.clone(), Array::floats(&dot.sizes, moved));
                    self.float_outputs(&self.run(self.program, &inputs), "")
                };
                let (up, down) = (at(step), at(-step));
                columns.push(up.iter().zip(down).map(|(u, d)| (u - d) / (2.0 * step)).collect());
            }
        }
        columns
    }

    fn float_outputs(&self, outputs: &HashMap<String, Array>, suffix: &str) -> Vec<f64> {
        let names = self.program.outputs.iter().filter(|o| o.elem.is_float()).map(|o| &o.name);
        names.flat_map(|name| floats(&outputs[&format!("{name}{suffix}")])).collect()
    }

    /// Reverse mode gives the Jacobian of forward mode.
    pub(crate) fn check_exact(&self) {
        let (rows, columns) = (self.reverse_jacobian(), self.forward_jacobian());
        compare(&self.program.name, &rows, &columns, 1e-12);
    }

    /// Reverse mode gives the Jacobian of forward mode, and central differences nearly do.
    pub(crate) fn check(&self) {
        self.check_exact();
        compare(&self.program.name, &self.reverse_jacobian(), &self.difference_jacobian(), 1e-7);
    }
}

/// Rows against columns, relative to the largest entry.
fn compare(name: &str, rows: &[Vec<f64>], columns: &[Vec<f64>], tolerance: f64) {
    let largest = columns.iter().flatten().fold(1.0f64, |m, x| m.max(x.abs()));
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), columns.len(), "{name}");
        for (j, x) in row.iter().enumerate() {
            let y = columns[j][i];
            let close = (x - y).abs() <= tolerance * largest;
            assert!(close, "{name}: output element {i}, parameter element {j}: {x} in reverse mode, {y} otherwise");
        }
    }
    assert!(columns.iter().all(|column| column.len() == rows.len()), "{name}");
}

/// The unit vectors of an array's shape.
fn one_hots(array: &Array) -> Vec<Array> {
    let n = array.data.len();
    let unit = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect::<Vec<_>>();
    (0..n).map(|i| Array::floats(&array.sizes, unit(i))).collect()
}

/// The elements of a float array.
pub(crate) fn floats(array: &Array) -> Vec<f64> {
    array.as_floats().unwrap().to_vec()
}
