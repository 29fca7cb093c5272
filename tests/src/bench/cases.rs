//! The cases: shapes that the yardstick names, and a few more.

use oplus::{Elem, Kernel, kernels};

use super::{delta, linear, matrix, own, selective};

/// A group of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// Long one-dimensional sequences.
    Scan,
    /// Many rows, and scans along the first axis.
    Rows,
    /// Log-decay scans.
    Monoid,
    /// Selective state-space scans.
    S6,
    /// Softmax attention.
    Attention,
    /// Mamba-2's state-space dual.
    Ssd,
    /// Recurrences of matrices other than SSD.
    Linear,
    /// States that every step multiplies by a matrix.
    Delta,
    /// Operators of users, for the CPU.
    Own,
}

/// How an input is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal numbers.
    Normal,
    /// Uniform numbers in a range.
    Uniform(f32, f32),
}

/// The work of a case.
pub enum Work {
    /// The driver's copy of that many `f32`.
    Copy(usize),
    /// A kernel's forward pass.
    Forward,
    /// Its gradient, from cotangents of its first output alone.
    Backward,
}

/// One case.
pub struct Case {
    /// Its name in the yardstick.
    pub name: String,
    /// Its group.
    pub group: Group,
    /// Forward or backward, or a copy.
    pub work: Work,
    /// The kernel; unused by copies.
    pub kernel: &'static Kernel,
    /// The element type of the tensors.
    pub elem: Elem,
    /// The shape and contents of the inputs, in the order of the kernel's parameters; parameters that are left out are
    /// left to their defaults.
    pub inputs: Vec<(Vec<usize>, Fill)>,
    /// Bytes that must move: each input read once, each output written once.
    pub bytes: u64,
}

const DECAYS: Fill = Fill::Uniform(0.5, 1.0);
const LOG_DECAYS: Fill = Fill::Uniform(-1.0, 0.0);

/// All cases.
pub fn all() -> Vec<Case> {
    let mut cases = vec![];
    for exponent in [20, 25, 28] {
        let n = 1 << exponent;
        cases.push(copy(exponent, n));
        cases.push(cumsum(Group::Scan, format!("cumsum-f32-2^{exponent}"), &[1, n]));
        cases.extend(affine(Group::Scan, &format!("affine-f32-2^{exponent}"), Elem::F32, [1, n], false));
    }
    for width in [1, 32] {
        let kernel = kernels::cumsum_time_first::kernel();
        let inputs = vec![(vec![1 << 20, width], Fill::Normal)];
        let name = format!("cumsum-f32-1048576x{width}-dim0");
        cases.push(forward(Group::Rows, name, kernel, Elem::F32, inputs, 2));
    }
    for [rows, len] in [[8192, 4096], [64, 262_144], [131_072, 256]] {
        cases.push(cumsum(Group::Rows, format!("cumsum-f32-{rows}x{len}"), &[rows, len]));
        for elem in [Elem::F32, Elem::Bf16] {
            let name = format!("affine-{elem}-{rows}x{len}");
            cases.extend(affine(Group::Rows, &name, elem, [rows, len], true));
        }
    }
    for [batch, time, channels] in [[16, 16_384, 128], [1, 131_072, 256]] {
        cases.extend(decay(batch, time, channels));
    }
    for shape in [[2, 16, 2048, 64, 64], [1, 8, 16_384, 64, 64], [4, 32, 512, 64, 64]] {
        cases.extend(monoid(shape));
    }
    cases.extend(selective::cases());
    cases.extend(matrix::cases());
    cases.extend(linear::cases());
    cases.extend(delta::cases());
    cases.extend(own::cases());
    cases
}

fn bytes(inputs: &[(Vec<usize>, Fill)], elem: Elem, tensors: usize) -> u64 {
    let each: usize = inputs[0].0.iter().product();
    (each * tensors * elem.bytes().unwrap_or(4)) as u64
}

fn forward(
    group: Group,
    name: String,
    kernel: &'static Kernel,
    elem: Elem,
    inputs: Vec<(Vec<usize>, Fill)>,
    tensors: usize,
) -> Case {
    let bytes = bytes(&inputs, elem, tensors);
    Case { name, group, work: Work::Forward, kernel, elem, inputs, bytes }
}

fn copy(exponent: u32, n: usize) -> Case {
    let inputs = vec![(vec![n], Fill::Normal)];
    let kernel = kernels::cumsum::kernel();
    let case = forward(Group::Scan, format!("copy-f32-2^{exponent}"), kernel, Elem::F32, inputs, 2);
    Case { work: Work::Copy(n), ..case }
}

fn cumsum(group: Group, name: String, shape: &[usize]) -> Case {
    forward(group, name, kernels::cumsum::kernel(), Elem::F32, vec![(shape.to_vec(), Fill::Normal)], 2)
}

/// a, b → h; backward a, h, h̄ → ā, b̄.
fn affine(group: Group, name: &str, elem: Elem, shape: [usize; 2], passes: bool) -> Vec<Case> {
    let case = |suffix: &str, work: Work, tensors| {
        let inputs = vec![(shape.to_vec(), DECAYS), (shape.to_vec(), Fill::Normal)];
        let name = format!("{name}{suffix}");
        Case { work, ..forward(group, name, kernels::affine::kernel(), elem, inputs, tensors) }
    };
    if passes {
        vec![case("-fwd", Work::Forward, 3), case("-bwd", Work::Backward, 5)]
    } else {
        vec![case("", Work::Forward, 3)]
    }
}

/// g, x → s; backward g, s, s̄ → ḡ, x̄.
fn decay(batch: usize, time: usize, channels: usize) -> [Case; 2] {
    let shape = vec![batch, time, channels];
    [("fwd", Work::Forward, 3), ("bwd", Work::Backward, 5)].map(|(pass, work, tensors)| {
        let inputs = vec![(shape.clone(), LOG_DECAYS), (shape.clone(), Fill::Normal)];
        let name = format!("decay-f32-b{batch}t{time}d{channels}-{pass}");
        let kernel = kernels::log_decay_channels::kernel();
        Case { work, ..forward(Group::Monoid, name, kernel, Elem::F32, inputs, tensors) }
    })
}

/// g, x → every state s; backward g, s, s̄ → ḡ, x̄. The decay is one number per head and step.
fn monoid([b, h, t, k, v]: [usize; 5]) -> [Case; 2] {
    let (decays, states) = (b * h * t, b * h * t * k * v);
    [("fwd", Work::Forward, decays + 2 * states), ("bwd", Work::Backward, 2 * decays + 3 * states)].map(
        |(pass, work, elements)| {
            let inputs = vec![(vec![b, h, t], LOG_DECAYS), (vec![b, h, t, k, v], Fill::Normal)];
            let name = format!("monoid-f32-b{b}h{h}t{t}k{k}v{v}-{pass}");
            let case = forward(Group::Monoid, name, kernels::monoid::kernel(), Elem::F32, inputs, 2);
            Case { work, bytes: 4 * elements as u64, ..case }
        },
    )
}
