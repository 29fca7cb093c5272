//! Sharded calls beside the interpreter's whole ones.

use std::ops::Range;
use std::thread;

use oplus::dist::Group;
use oplus::{Elem, Error, Kernel, Tensor};
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::testing::inputs;

/// A call of a program in f64 that is divided along an axis.
pub(crate) struct Case {
    pub(crate) kernel: Kernel,
    program: Program,
    axis: Axis,
    sizes: Vec<usize>,
    pub(crate) inputs: Vec<Option<Array>>,
    pub(crate) outputs: Vec<Array>,
    /// One for each output of floats.
    pub(crate) cotangents: Vec<Array>,
    /// One for each parameter of floats that is given; `None` where there is no gradient.
    pub(crate) gradients: Option<Vec<Option<Array>>>,
}

/// The results of a rank: its outputs and its gradients.
pub(crate) type Given = (Vec<Tensor>, Option<Vec<Option<Tensor>>>);

impl Case {
    /// Random inputs for a program whose axes have these sizes, and what the interpreter makes of them.
    pub(crate) fn new(program: &Program, axis: &str, sizes: &[usize], seed: u64) -> Case {
        let text: &'static str = program.to_string().leak();
        let kernel = Kernel::new("case", text);
        let program = program.instantiate(Elem::F64);
        let axis = program.axis(axis).expect("the axis is there");
        let inputs = inputs(&program, sizes, seed);
        let outputs = interpreted(&program, &inputs, sizes);
        let mut rng = Rng::new(seed ^ 0x5eed);
        let floats = program.outputs.iter().zip(&outputs).filter(|(output, _)| output.elem.is_float());
        let cotangents: Vec<Array> = floats
            .map(|(_, y)| {
                Array::floats(&y.sizes, (0..y.data.len()).map(|_| rng.between(-1.0, 1.0)).collect::<Vec<_>>())
            })
            .collect();
        let mut case =
            Case { kernel, program, axis, sizes: sizes.to_vec(), inputs, outputs, cotangents, gradients: None };
        case.gradients = case.interpreted_gradients();
        case
    }

    fn interpreted_gradients(&self) -> Option<Vec<Option<Array>>> {
        let bar = self.kernel.gradient_program().ok()?.instantiate(Elem::F64);
        let float_outputs: Vec<_> = self.program.outputs.iter().filter(|output| output.elem.is_float()).collect();
        let tensor = |param: &Param| {
            if let Some(k) = self.program.params.iter().position(|p| p.name == param.name) {
                return self.inputs[k].clone();
            }
            if let Some(k) = self.program.outputs.iter().position(|output| output.name == param.name) {
                return Some(self.outputs[k].clone());
            }
            let stem = param.name.strip_suffix(".bar").expect("a cotangent");
            let k = float_outputs.iter().position(|output| output.name == stem).expect("an output");
            Some(self.cotangents[k].clone())
        };
        let given: Vec<_> = bar.params.iter().map(tensor).collect();
        let sizes: Vec<usize> =
            bar.axes.iter().map(|name| self.sizes[self.program.axis(name).expect("an axis").0 as usize]).collect();
        let all = interpreted(&bar, &given, &sizes);
        let gradient = |(k, param): (usize, &Param)| {
            self.inputs[k].as_ref()?;
            let name = format!("{}.bar", param.name);
            bar.outputs.iter().position(|output| output.name == name).map(|at| all[at].clone())
        };
        Some(self.program.params.iter().enumerate().filter(|(_, p)| p.elem.is_float()).map(gradient).collect())
    }

    pub(crate) fn size(&self) -> usize {
        self.sizes[self.axis.0 as usize]
    }

    /// Whether every number is finite.
    pub(crate) fn is_finite(&self) -> bool {
        let gradients = self.gradients.iter().flatten().flatten();
        self.outputs.iter().chain(gradients).filter_map(Array::as_floats).flatten().all(|x| x.is_finite())
    }

    /// Calls the kernel on one thread for each part of the axis, which it divides into segments if their number divides its size, and its
    /// rows into parts if they are independent.
    pub(crate) fn run_in(&self, parts: &[usize], (segments, rows): (usize, usize)) -> Vec<Result<Given, Error>> {
        assert_eq!(parts.iter().sum::<usize>(), self.size());
        thread::scope(|scope| {
            let ranks: Vec<_> = Group::threads(parts.len())
                .into_iter()
                .map(|group| group.with_segments(segments).with_parts(rows))
                .map(|group| scope.spawn(move || self.rank(&group, range(parts, group.rank()))))
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
        })
    }

    fn rank(&self, group: &Group, part: Range<usize>) -> Result<Given, Error> {
        let given = self.program.params.iter().zip(&self.inputs);
        let inputs: Vec<Option<Tensor>> =
            given.map(|(p, array)| Some(self.part(array.as_ref()?, p.elem, &p.axes, &part))).collect();
        let axis = self.program.axis_name(self.axis);
        let (outputs, call) =
            self.kernel.call_sharded(group, axis, &inputs.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        if self.gradients.is_none() {
            return Ok((outputs, None));
        }
        let floats = self.program.outputs.iter().filter(|output| output.elem.is_float());
        let cotangents: Vec<Tensor> = floats
            .zip(&self.cotangents)
            .map(|(output, array)| self.part(array, output.elem, &output.axes, &part))
            .collect();
        let gradients = self.kernel.backward(&call, &cotangents.iter().map(Some).collect::<Vec<_>>())?;
        Ok((outputs, Some(gradients)))
    }

    /// A rank's part of an array.
    fn part(&self, array: &Array, elem: Elem, axes: &[Axis], part: &Range<usize>) -> Tensor {
        let whole = tensor(array, elem);
        let along = axes.iter().position(|axis| *axis == self.axis);
        along.map_or(whole.clone(), |along| whole.slice(along, part.clone()).expect("a part"))
    }

    /// Checks that the ranks give the parts of what the interpreter gives for the whole.
    pub(crate) fn check(&self, parts: &[usize], tolerance: f64) {
        self.check_in_segments(parts, 1, tolerance);
    }

    /// [`Case::check`] of ranks that divide their parts into segments.
    pub(crate) fn check_in_segments(&self, parts: &[usize], segments: usize, tolerance: f64) {
        self.check_in(parts, (segments, 1), tolerance);
    }

    /// [`Case::check`] of ranks that divide their parts into segments, and their rows into parts.
    pub(crate) fn check_in(&self, parts: &[usize], ways: (usize, usize), tolerance: f64) {
        for (rank, given) in self.run_in(parts, ways).into_iter().enumerate() {
            let part = range(parts, rank);
            let (outputs, gradients) =
                given.unwrap_or_else(|error| panic!("rank {rank} of {parts:?}: {error}\n{}", self.program));
            for ((output, found), wanted) in self.program.outputs.iter().zip(&outputs).zip(&self.outputs) {
                let wanted = self.part(wanted, output.elem, &output.axes, &part);
                self.compare(&format!("{} of rank {rank} of {parts:?}", output.name), found, &wanted, tolerance);
            }
            let params = self.program.params.iter().filter(|param| param.elem.is_float());
            let wanted = self.gradients.iter().flatten();
            for ((param, found), wanted) in params.zip(gradients.iter().flatten()).zip(wanted) {
                let (Some(found), Some(wanted)) = (found, wanted) else { continue };
                let wanted = self.part(wanted, param.elem, &param.axes, &part);
                self.compare(&format!("{}.bar of rank {rank} of {parts:?}", param.name), found, &wanted, tolerance);
            }
        }
    }

    fn compare(&self, what: &str, found: &Tensor, wanted: &Tensor, tolerance: f64) {
        assert_eq!((found.elem(), found.shape()), (wanted.elem(), wanted.shape()), "{what}");
        let (found, wanted) = (numbers(found), numbers(wanted));
        let scale = wanted.iter().filter(|x| x.is_finite()).fold(1.0_f64, |scale, x| scale.max(x.abs()));
        for (x, y) in found.iter().zip(&wanted) {
            let is_close = x == y || (x - y).abs() <= tolerance * scale || x.is_nan() && y.is_nan();
            assert!(is_close, "{what}: {found:?}\nnot {wanted:?}\n{}", self.program);
        }
    }
}

fn interpreted(program: &Program, given: &[Option<Array>], sizes: &[usize]) -> Vec<Array> {
    let sizes: Vec<_> = sizes.iter().take(program.axes.len()).enumerate().map(|(k, n)| (Axis(k as u32), *n)).collect();
    interpret_sized(program, given, &sizes, Mode::default()).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

/// The indices of a rank's part.
pub(crate) fn range(parts: &[usize], rank: usize) -> Range<usize> {
    let start: usize = parts[..rank].iter().sum();
    start..start + parts[rank]
}

/// A tensor with the elements of an array.
pub(crate) fn tensor(array: &Array, elem: Elem) -> Tensor {
    let shape = &array.sizes;
    let tensor = match (&array.data, elem) {
        (Data::Float(xs), Elem::F32) => Tensor::from_vec(xs.iter().map(|x| *x as f32).collect(), shape),
        (Data::Float(xs), _) => Tensor::from_vec(xs.clone(), shape),
        (Data::Bool(xs), _) => Tensor::from_vec(xs.clone(), shape),
        (Data::Int(xs), Elem::I32) => Tensor::from_vec(xs.iter().map(|x| *x as i32).collect(), shape),
        (Data::Int(xs), Elem::U32) => Tensor::from_vec(xs.iter().map(|x| *x as u32).collect(), shape),
        (Data::Int(xs), Elem::U64) => Tensor::from_vec(xs.iter().map(|x| *x as u64).collect(), shape),
        (Data::Int(xs), _) => Tensor::from_vec(xs.clone(), shape),
    };
    tensor.expect("the elements fill the shape")
}

/// The elements as f64.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    fn all<T: oplus::Element>(tensor: &Tensor, f: impl Fn(T) -> f64) -> Vec<f64> {
        tensor.to_vec::<T>().expect("on the CPU").into_iter().map(f).collect()
    }
    match tensor.elem() {
        Elem::F64 => all::<f64>(tensor, |x| x),
        Elem::F32 => all::<f32>(tensor, f64::from),
        Elem::I32 => all::<i32>(tensor, f64::from),
        Elem::I64 => all::<i64>(tensor, |x| x as f64),
        Elem::U32 => all::<u32>(tensor, f64::from),
        Elem::U64 => all::<u64>(tensor, |x| x as f64),
        Elem::Bool => all::<bool>(tensor, |x| f64::from(u8::from(x))),
        elem => panic!("no {elem} in these tests"),
    }
}

/// Uneven parts of a size for 1, 2, 3 and 7 ranks; some are empty.
pub(crate) fn divisions(n: usize) -> Vec<Vec<usize>> {
    let third = n / 3;
    let mut seven = vec![0, 1, 2, 0, third, 1];
    let mut left = n;
    seven.iter_mut().for_each(|part| {
        *part = (*part).min(left);
        left -= *part;
    });
    seven.push(left);
    vec![vec![n], vec![n - third, third], vec![third, n - third, 0], seven]
}
