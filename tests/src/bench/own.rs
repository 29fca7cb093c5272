//! Operators as users write them, beside one thread's plain loop: no kernel of the library knows them.
//!
//! The plain loops are what a user would write instead, over contiguous rows of `f32`. Compile this crate with
//! `RUSTFLAGS="-C target-cpu=native"`, so that they get all that the processor has; the engine finds that out by itself.

mod plain;

use oplus::{Elem, Kernel, kernels, scan};

use super::cases::{Case, Fill, Group, Work};
pub(super) use plain::Plain;

scan! {
    /// Peaks that sink by d.
    pub op LeakyMax(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    /// Rotations, one after the other: Hamilton's product.
    pub op Quaternion(w, x, y, z) {
        identity (1, 0, 0, 0);
        combine(l, r) (
            l.w * r.w - l.x * r.x - l.y * r.y - l.z * r.z,
            l.w * r.x + l.x * r.w + l.y * r.z - l.z * r.y,
            l.w * r.y - l.x * r.z + l.y * r.w + l.z * r.x,
            l.w * r.z + l.x * r.y - l.y * r.x + l.z * r.w,
        );
    }

    /// A state of two numbers, a matrix and an addend at each step.
    pub op Matrix(a, b, c, d, u, v) {
        identity (1, 0, 0, 1, 0, 0);
        combine(l, r) (
            r.a * l.a + r.b * l.c,
            r.a * l.b + r.b * l.d,
            r.c * l.a + r.d * l.c,
            r.c * l.b + r.d * l.d,
            r.a * l.u + r.b * l.v + r.u,
            r.c * l.u + r.d * l.v + r.v,
        );
    }

    /// h\[t\] = max(h\[t−1\] − d\[t\], x\[t\])
    pub fn peaks(d: f32[B, T], x: f32[B, T]) -> (h: f32[B, T]) {
        h = scan(T, LeakyMax(d, x)).h;
    }

    /// q\[t\] = q\[t−1\] · p\[t\], of quaternions.
    pub fn rotations(w: f32[B, T], x: f32[B, T], y: f32[B, T], z: f32[B, T])
        -> (qw: f32[B, T], qx: f32[B, T], qy: f32[B, T], qz: f32[B, T]) {
        let q = scan(T, Quaternion(w, x, y, z));
        qw = q.w;
        qx = q.x;
        qy = q.y;
        qz = q.z;
    }

    /// s\[t\] = M\[t\] · s\[t−1\] + p\[t\], of two numbers.
    pub fn matrices(
        a: f32[B, T], b: f32[B, T], c: f32[B, T], d: f32[B, T], p: f32[B, T], q: f32[B, T],
    ) -> (u: f32[B, T], v: f32[B, T]) {
        let s = scan(T, Matrix(a, b, c, d, p, q));
        u = s.u;
        v = s.v;
    }
}

/// Rows and steps.
const SHAPES: [[usize; 2]; 2] = [[1, 1 << 22], [64, 65_536]];

/// Uniform numbers around 0.
const SMALL: Fill = Fill::Uniform(-0.6, 0.6);

/// Every operator in every shape, and its gradient.
pub fn cases() -> Vec<Case> {
    SHAPES.into_iter().flat_map(|shape| operators().map(|operator| operator.cases(shape))).flatten().collect()
}

/// The plain loop of a case.
pub(super) fn plain(case: &Case) -> Option<Plain> {
    let name = case.name.strip_prefix("own-")?;
    let operator = operators().into_iter().find(|operator| name.starts_with(operator.name))?;
    Some(match case.work {
        Work::Backward => operator.backward,
        _ => operator.forward,
    })
}

/// An operator with its kernel and the plain loops.
struct Operator {
    name: &'static str,
    kernel: &'static Kernel,
    inputs: Vec<Fill>,
    outputs: usize,
    forward: Plain,
    backward: Plain,
}

fn operators() -> [Operator; 4] {
    let unit = Fill::Uniform(0.0, 1.0);
    [
        Operator {
            name: "affine",
            kernel: kernels::affine::kernel(),
            inputs: vec![unit, Fill::Normal],
            outputs: 1,
            forward: plain::affine,
            backward: plain::affine_backward,
        },
        Operator {
            name: "peaks",
            kernel: peaks::kernel(),
            inputs: vec![unit, Fill::Normal],
            outputs: 1,
            forward: plain::peaks,
            backward: plain::peaks_backward,
        },
        Operator {
            name: "rotations",
            kernel: rotations::kernel(),
            inputs: vec![SMALL; 4],
            outputs: 4,
            forward: plain::rotations,
            backward: plain::rotations_backward,
        },
        Operator {
            name: "matrices",
            kernel: matrices::kernel(),
            inputs: vec![SMALL; 6],
            outputs: 2,
            forward: plain::matrices,
            backward: plain::matrices_backward,
        },
    ]
}

impl Operator {
    fn cases(&self, [rows, steps]: [usize; 2]) -> [Case; 2] {
        let each = 4 * rows * steps;
        let case = |work: Work, pass: &str, tensors: usize| Case {
            name: format!("own-{}-f32-{rows}x{steps}-{pass}", self.name),
            group: Group::Own,
            work,
            kernel: self.kernel,
            elem: Elem::F32,
            inputs: self.inputs.iter().map(|fill| (vec![rows, steps], *fill)).collect(),
            bytes: (each * tensors) as u64,
        };
        let inputs = self.inputs.len();
        [case(Work::Forward, "fwd", inputs + self.outputs), case(Work::Backward, "bwd", 2 * inputs + self.outputs + 1)]
    }
}
