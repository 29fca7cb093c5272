//! Which kernels are divided, and their inputs.

use oplus::{Elem, Error, Kernel, Tensor, kernels, models};
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Axis, Op, Param, Program};
use oplus_dsl::rng::Rng;
use oplus_front::library_programs;

use crate::check::data::host;
use crate::check::inputs::{Fill, array};

/// A kernel with the axis along which it is divided, and the sizes of its other axes.
pub struct Case {
    /// Its name.
    pub name: String,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The axis.
    pub axis: String,
    /// Sizes of other axes; 1 where none is said.
    sizes: Vec<(String, usize)>,
    /// How many tokens a check takes.
    pub checked: usize,
}

/// The cases that are timed; checks take so many tokens.
pub fn timed(checked: usize) -> Vec<Case> {
    let case = |name: &str, kernel, axis: &str, sizes: &[(&str, usize)]| Case {
        name: name.into(),
        kernel,
        axis: axis.into(),
        sizes: sizes.iter().map(|(axis, size)| ((*axis).into(), *size)).collect(),
        checked,
    };
    let few = &[("B", 1), ("G", 1), ("H", 4), ("P", 64), ("N", 64)];
    let heads = &[("B", 1), ("G", 1), ("H", 24), ("P", 64), ("N", 128)];
    let channels = |channels| [("B", 1), ("G", 1), ("D", channels), ("N", 16)];
    let attention = &[("B", 1), ("G", 2), ("R", 1), ("M", 64), ("E", 64), ("F", 64)];
    vec![
        case("affine", kernels::affine::kernel(), "T", &[("B", 64)]),
        case("selective_scan", models::selective_scan::kernel(), "T", &channels(256)),
        case("ssd", models::ssd::kernel(), "T", few),
        // The layers of Mamba and Mamba-2 of 130 million parameters.
        case("selective_scan_130m", models::selective_scan::kernel(), "T", &channels(1536)),
        case("ssd_130m", models::ssd::kernel(), "T", heads),
        case("attention", models::attention::kernel(), "N", attention),
    ]
}

/// Every kernel of the library along its time, or whatever is scanned or summed.
///
/// # Errors
/// The errors of [`Kernel::from_program`].
pub fn library() -> Result<Vec<Case>, Error> {
    let divided = |program: &Program| {
        let axis = program.nodes.iter().find_map(|node| match node.op {
            Op::Scan { axis, .. } => Some(axis),
            _ => None,
        });
        let summed = || program.axis(if program.axis("N").is_some() { "N" } else { "T" });
        let has = |axis: &Axis| program.params.iter().any(|param| param.axes.contains(axis));
        axis.or_else(summed).filter(has).map(|axis| program.axis_name(axis).to_owned())
    };
    let mut cases = vec![];
    for program in library_programs() {
        let Some(axis) = divided(&program) else { continue };
        let size = |name: &String| match name.as_str() {
            "T" => 211,
            "M" | "N" if program.name.starts_with("attention") => 97,
            "B" | "G" => 1,
            "S" => 4,
            "S.ends" => 5,
            _ => 4,
        };
        let sizes = program.axes.iter().map(|name| (name.clone(), size(name))).collect();
        let (name, checked) = (program.name.clone(), size(&axis));
        // A kernel lives as long as the program.
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel::from_program(program)?));
        cases.push(Case { name, kernel, axis, sizes, checked });
    }
    Ok(cases)
}

impl Case {
    /// The program.
    pub(super) fn program(&self) -> Result<&'static Program, Error> {
        self.kernel.program()
    }

    /// Sizes of all axes, with that many tokens.
    pub(super) fn sizes(&self, tokens: usize) -> Result<Vec<usize>, Error> {
        Ok(self.program()?.axes.iter().map(|name| self.size(name, tokens, 1)).collect())
    }

    /// The size of an axis, with that many tokens; of an axis that the case does not know, `other`.
    pub(super) fn size(&self, name: &str, tokens: usize, other: usize) -> usize {
        match self.sizes.iter().find(|(known, _)| known == name) {
            _ if name == self.axis => tokens,
            Some((_, size)) => *size,
            None => other,
        }
    }

    /// Random inputs of the whole, on the CPU; those with a default are left out.
    pub(super) fn inputs(&self, tokens: usize) -> Result<Vec<Option<Tensor>>, Error> {
        let (program, sizes, mut rng) = (self.program()?, self.sizes(tokens)?, Rng::new(0xd157));
        let mut tensor = |param: &Param| {
            let array = array(program, param, Elem::F32, &sizes, Fill::Random, &mut rng);
            of_array(&array, param.elem.in_call(Elem::F32))
        };
        let given = |param: &Param| (param.default.is_none()).then(|| tensor(param)).transpose();
        program.params.iter().map(given).collect()
    }

    /// The parameters of floats that are given.
    pub(super) fn float_params(&self) -> Result<Vec<&'static Param>, Error> {
        let params = self.program()?.params.iter();
        Ok(params.filter(|param| param.elem.is_float() && param.default.is_none()).collect())
    }
}

/// A tensor with the elements of an array.
pub(super) fn of_array(array: &Array, elem: Elem) -> Result<Tensor, Error> {
    host(elem, &array.data)?.reshape(&array.sizes)
}
