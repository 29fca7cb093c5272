//! The cases that are checked: kernels, element types, sizes, layouts.

use std::fmt;

use oplus::{Elem, Kernel};
use oplus_dsl::ir::{Op, Output, Param, Program};
use oplus_dsl::step::step;
use oplus_dsl::testing::{Ingredients, program};

use super::data::Placement;
use super::inputs::Fill;

/// One call of a kernel, and of its gradient if it has one.
#[derive(Clone)]
pub struct Case {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// A prefix of its name, to tell it from others of that name.
    pub prefix: String,
    /// The call's element type.
    pub elem: Elem,
    /// The optional tensors that it gives.
    pub given: Given,
    /// Size of every axis, by name.
    pub sizes: Vec<(String, usize)>,
    /// How its tensors lie in memory.
    pub placement: Placement,
    /// The numbers that they hold.
    pub fill: Fill,
    /// Seed of what they hold.
    pub seed: u64,
}

/// Which of the optional tensors a call gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// No optional parameter, and the first cotangent alone.
    Least,
    /// Every parameter, and the first cotangent alone.
    Params,
    /// Every parameter and every cotangent.
    All,
}

impl Case {
    /// Whether it gives a parameter of its kernel.
    pub fn gives(&self, param: &Param) -> bool {
        self.given != Given::Least || param.default.is_none()
    }

    /// The outputs of its kernel of whose cotangents it gives.
    pub fn cotangents<'p>(&self, program: &'p Program) -> impl Iterator<Item = &'p Output> {
        let most = if self.given == Given::All { usize::MAX } else { 1 };
        program.outputs.iter().filter(|o| o.elem.is_float()).take(most)
    }

    /// The size of every axis of a program.
    pub fn axis_sizes(&self, program: &Program) -> Vec<usize> {
        let size = |name: &String| self.sizes.iter().find(|(axis, _)| axis == name).map_or(1, |(_, n)| *n);
        program.axes.iter().map(size).collect()
    }

    /// About how many numbers the interpreter computes for it: the elements of all values of its program and its gradient,
    /// those of scans and reductions once for every operation of the operator.
    pub fn cost(&self) -> u64 {
        let of = |program: &Program| -> u64 {
            let sizes = self.axis_sizes(program);
            let cost = |node: &oplus_dsl::ir::Node| {
                let (axis, times) = match &node.op {
                    Op::Scan { axis, operator, .. } | Op::Reduce { axis, operator, .. } => {
                        (Some(*axis), program.operator(*operator).body.len())
                    }
                    _ => (None, 1),
                };
                let axes = axis.map_or(node.axes, |axis| node.axes.with(axis));
                axes.iter().map(|axis| sizes[axis.0 as usize] as u64).product::<u64>() * times as u64
            };
            program.nodes.iter().map(cost).sum()
        };
        let programs = [self.kernel.program().ok(), self.kernel.gradient_program().ok()];
        programs.into_iter().flatten().map(of).sum()
    }

    /// Whether it is of a standard kernel, of which some are committed.
    pub fn is_standard(&self) -> bool {
        self.prefix.is_empty()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.given {
            Given::Least => "lean",
            Given::Params => "params",
            Given::All => "full",
        };
        let sizes = self.sizes.iter().map(|(axis, n)| format!("{axis}={n}")).collect::<Vec<_>>().join(",");
        let (placement, fill) = (format!("{:?}", self.placement), format!("{:?}", self.fill));
        let (prefix, name) = (&self.prefix, self.kernel.name());
        write!(f, "{prefix}{name}/{}/{form}/{sizes}/{placement}/{fill}", self.elem)
    }
}

/// The standard kernels and models, and the one-step forms of those that have one; before each what tells models from
/// kernels of the same name.
pub fn standard() -> Vec<(&'static str, &'static Kernel)> {
    let kernels = oplus_front::standard_programs().into_iter().map(|program| ("", program));
    let models = oplus_front::model_programs().into_iter().map(|program| ("models:", program));
    let with_step = |(prefix, program): (&'static str, Program)| {
        let step = step(&program).ok().map(|step| step.program);
        [Some(program), step].into_iter().flatten().map(move |program| (prefix, kernel(&program)))
    };
    kernels.chain(models).flat_map(with_step).collect()
}

/// The kernel of a program. It lives as long as the process, like those that `scan!` writes down.
fn kernel(program: &Program) -> &'static Kernel {
    Box::leak(Box::new(Kernel::new(program.name.clone().leak(), program.to_string().leak())))
}

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A minute under a sanitizer.
    Quick,
    /// Every kernel under every schedule.
    Default,
    /// More lengths and more programs.
    Long,
}

/// Lengths of the scan axis: nothing, one, two, around warps and tiles, primes.
const LENGTHS: [usize; 17] = [0, 1, 2, 3, 31, 33, 127, 255, 257, 1021, 1023, 1025, 4095, 4097, 8209, 16_385, 20_011];
/// A length that every access and most tiles divide.
const TILE: usize = 4096;
/// Lengths of a quick check.
const QUICK: [usize; 4] = [1, 33, 1025, 4097];
/// Rows.
const ROWS: [usize; 5] = [3, 1, 5, 2, 17];
/// Packed sequences.
const SEQUENCES: [usize; 4] = [4, 1, 9, 0];
/// Sizes of axes that are not scanned.
const INNER: [usize; 6] = [4, 3, 8, 1, 64, 33];

/// All cases of the standard kernels and models.
pub fn standard_cases(extent: Extent) -> Vec<Case> {
    cases(standard(), extent, |prefix| prefix.is_empty())
}

/// The cases of committed kernels: the standard kernels', and of models those in which their few kernels run.
pub fn committed_cases() -> Vec<Case> {
    let options = oplus_front::option_models();
    let name = |kernel: &Kernel| kernel.name().trim_end_matches("_step").to_owned();
    let committed = standard().into_iter().filter(|(_, kernel)| !options.contains(&name(kernel)));
    let (kernels, models): (Vec<_>, Vec<_>) = committed.partition(|(prefix, _)| prefix.is_empty());
    let of_model = |(prefix, kernel): (&str, _)| model_cases(&Case { prefix: prefix.to_owned(), ..blank(kernel) });
    let mut all = cases(kernels, Extent::Default, |_| true);
    all.extend(models.into_iter().flat_map(of_model));
    all
}

/// Widths of states, keys and channels of models, and lengths of time and keys: those that kernels of models are for, and
/// others; with what is aligned, and what is not.
const WIDTHS: [(usize, usize, Placement); 8] = [
    (5, 71, Placement::Strided),
    (1, 40, Placement::Contiguous),
    (16, 136, Placement::Contiguous),
    (64, 136, Placement::Contiguous),
    (128, 72, Placement::Contiguous),
    (100, 71, Placement::Misaligned),
    (16, 4096, Placement::Contiguous),
    (64, 1024, Placement::Contiguous),
];
/// From here on time is cut into segments, where it is scanned; pairs of so many are too many for the interpreter.
const CUT: usize = 1024;

/// Cases of a model's committed kernels, which are for calls with every parameter, and the first cotangent or all.
fn model_cases(base: &Case) -> Vec<Case> {
    let Ok(program) = base.kernel.program() else { return vec![] };
    let is_attention = program.axis("E").is_some();
    let outputs = program.outputs.iter().filter(|o| o.elem.is_float()).count();
    let forms: &[Given] = if outputs > 1 { &[Given::Params, Given::All] } else { &[Given::Params] };
    let of_form = |(elem, given): (Elem, Given)| {
        let widths = WIDTHS.into_iter().filter(move |(_, time, _)| !is_attention || *time < CUT);
        let axes = program.axes.clone();
        widths.enumerate().map(move |(turn, (width, time, placement))| {
            let size = |axis: &String| match axis.as_str() {
                "T" | "M" => time,
                "N" if is_attention => time,
                "B" | "G" | "H" | "R" => {
                    if width < 64 {
                        2
                    } else {
                        1
                    }
                }
                "D" => 3,
                "S" => 4,
                "S.ends" => 5,
                "P" => width.min(64),
                _ => width,
            };
            let sizes = axes.iter().map(|axis| (axis.clone(), size(axis))).collect();
            let fill = [Fill::Random, Fill::Whole, Fill::NearOne][turn % 3];
            Case { elem, given, sizes, placement, fill, seed: turn as u64, ..base.clone() }
        })
    };
    let elems = [Elem::F32, Elem::Bf16, Elem::F16].into_iter();
    elems.flat_map(|elem| forms.iter().map(move |given| (elem, *given))).flat_map(of_form).collect()
}

fn cases(
    kernels: Vec<(&'static str, &'static Kernel)>,
    extent: Extent,
    in_all_forms: impl Fn(&str) -> bool,
) -> Vec<Case> {
    let mut cases = vec![];
    for (k, (prefix, kernel)) in kernels.into_iter().enumerate() {
        let Ok(program) = kernel.program() else { continue };
        let elems: &[Elem] = match (program.is_generic(), extent) {
            (false, _) => &[Elem::F32],
            (_, Extent::Quick) => &[Elem::F32, Elem::Bf16],
            _ => &[Elem::F32, Elem::Bf16, Elem::F16, Elem::F64],
        };
        for (e, elem) in elems.iter().enumerate() {
            for given in forms(program, in_all_forms(prefix)) {
                let base = Case { prefix: prefix.to_owned(), elem: *elem, given: *given, ..blank(kernel) };
                cases.extend(shapes(&base, program, extent, k + e));
            }
        }
    }
    cases
}

/// The forms of calls of a program: every form that kernels are committed for, or the fullest and the leanest.
fn forms(program: &Program, all: bool) -> &'static [Given] {
    let outputs = program.outputs.iter().filter(|o| o.elem.is_float()).count();
    let optional = program.params.iter().any(|p| p.default.is_some());
    match (optional, outputs) {
        (true, 2..) if all => &[Given::Least, Given::Params, Given::All],
        (false, 0 | 1) if program.outputs.len() <= 1 => &[Given::All],
        _ => &[Given::Least, Given::All],
    }
}

fn blank(kernel: &'static Kernel) -> Case {
    Case {
        kernel,
        prefix: String::new(),
        elem: Elem::F32,
        given: Given::All,
        sizes: vec![],
        placement: Placement::Contiguous,
        fill: Fill::Random,
        seed: 0,
    }
}

/// A kernel for every length, with layouts and contents in turn.
fn shapes(base: &Case, program: &Program, extent: Extent, turn: usize) -> Vec<Case> {
    let lengths: &[usize] = match (scanned(program), extent) {
        (None, _) => &LENGTHS[1..4],
        (_, Extent::Quick) => &QUICK,
        // The states of these are many times their inputs, and the interpreter has to hold them all.
        _ if inner(program) > 1 && extent == Extent::Default => &LENGTHS[..11],
        _ => &LENGTHS,
    };
    // Other element types and forms take the same paths with other numbers: every other length will do.
    let repeats = base.elem != Elem::F32 || base.given == Given::Params;
    let skip = |i: usize| extent == Extent::Default && repeats && (i + turn) % 2 == 1;
    let mut cases = vec![];
    for (i, length) in lengths.iter().enumerate().filter(|(i, _)| !skip(*i)) {
        let placements: &[Placement] = match (extent, (i + turn) % 4) {
            (Extent::Quick, _) => &[Placement::Contiguous],
            (_, 0) => &[Placement::Contiguous, Placement::Misaligned, Placement::Strided],
            _ => &[Placement::Contiguous, Placement::Padded],
        };
        for (p, placement) in placements.iter().enumerate() {
            let turn = turn + i + p;
            let fill = [Fill::Random, Fill::Whole, Fill::NearOne][turn % 3];
            let sizes = sizes(program, *length, turn);
            cases.push(Case { sizes, placement: *placement, fill, seed: turn as u64, ..base.clone() });
        }
    }
    if let (1.., Some(scanned), true) = (inner(program), scanned(program), extent != Extent::Quick) {
        let sizes = narrow(program, scanned, turn);
        cases.push(Case { sizes, fill: Fill::NearOne, seed: turn as u64, ..base.clone() });
    }
    cases
}

/// Sizes with the scanned axis contiguous: those behind it, and what else is no row or head, have size 1.
fn narrow(program: &Program, scanned: &str, turn: usize) -> Vec<(String, usize)> {
    let kept = ["B", "H", "G", "S", "S.ends", scanned];
    let size = |(axis, size): (String, usize)| if kept.contains(&axis.as_str()) { (axis, size) } else { (axis, 1) };
    sizes(program, TILE, turn).into_iter().map(size).collect()
}

/// The axis that a standard kernel scans: T, or P where parts are merged; a single step scans none.
fn scanned(program: &Program) -> Option<&'static str> {
    let merges = program.name == "softmax_merge";
    if merges { Some("P") } else { program.axis("T").map(|_| "T") }
}

/// How many axes a kernel has beside rows, heads and the scanned one.
fn inner(program: &Program) -> usize {
    let outer = ["B", "H", "G", "S", "S.ends", scanned(program).unwrap_or("T")];
    program.axes.iter().filter(|a| !outer.contains(&a.as_str())).count()
}

/// Sizes of a standard kernel's axes.
fn sizes(program: &Program, length: usize, turn: usize) -> Vec<(String, usize)> {
    let (scanned, inner) = (scanned(program), inner(program));
    let size = |(k, axis): (usize, &String)| match axis.as_str() {
        name if Some(name) == scanned => length,
        "G" => [1, 2][turn % 2],
        "B" | "H" if inner > 0 || length > 10_000 => [2, 1, 3][(turn + k) % 3],
        "B" => ROWS[turn % ROWS.len()],
        "S" => SEQUENCES[turn % SEQUENCES.len()],
        "S.ends" => SEQUENCES[turn % SEQUENCES.len()] + 1,
        _ if inner > 1 || length > 10_000 => [4, 3, 2][(turn + k) % 3],
        _ => INNER[(turn + k) % INNER.len()],
    };
    program.axes.iter().enumerate().map(|axis| (axis.1.clone(), size(axis))).collect()
}

/// Random programs as a user might write them, fresh for every seed.
pub fn random_cases(seeds: std::ops::Range<u64>) -> Vec<Case> {
    seeds.map(random_case).collect()
}

fn random_case(seed: u64) -> Case {
    let elem = [Elem::F32, Elem::Bf16, Elem::F64, Elem::F16][seed as usize % 4];
    let elems = if seed.is_multiple_of(5) { vec![Elem::Call, Elem::F32] } else { vec![Elem::Call] };
    let ingredients = Ingredients { elems, steps: 5, differentiable: seed.is_multiple_of(2) };
    let mut program = program(seed, &ingredients);
    program.name = format!("random{seed}");
    let lengths = [[2, 300, 4], [3, 33, 5], [1, 1025, 8], [5, 7, 3], [2, 1, 2]][seed as usize % 5];
    let size = |(k, axis): (usize, &String)| (axis.clone(), *lengths.get(k).unwrap_or(&3));
    let sizes = program.axes.iter().enumerate().map(size).collect();
    let placements = [Placement::Contiguous, Placement::Padded, Placement::Strided, Placement::Misaligned];
    let placement = placements[(seed / 2) as usize % 4];
    let kernel = kernel(&program);
    let given = if seed.is_multiple_of(3) { Given::Least } else { Given::All };
    Case { prefix: "user:".to_owned(), elem, given, sizes, placement, seed, ..blank(kernel) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_standard_kernel_is_checked_and_is_what_the_library_calls() {
        let checked = standard();
        assert!(checked.len() > 60, "{} kernels", checked.len());
        for known in [
            oplus::kernels::affine::kernel(),
            oplus::models::mamba::kernel(),
            oplus::models::ema_constant::step::kernel(),
        ] {
            let same = checked.iter().map(|(_, kernel)| kernel).filter(|kernel| kernel.name() == known.name());
            assert!(same.into_iter().any(|kernel| kernel.program() == known.program()), "{}", known.name());
        }
    }

    #[test]
    fn names_of_cases_tell_them_apart() {
        let mut names: Vec<String> = standard_cases(Extent::Long).iter().map(ToString::to_string).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
