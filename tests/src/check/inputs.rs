//! The numbers that tensors are filled with.

use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::{Param, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::{Elem, Ty, scalar};

/// How the inputs of a call are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Random numbers.
    Random,
    /// Small whole numbers, decays 0 or ±1: nothing is rounded, so that every bit is known.
    Whole,
    /// Decays 1 − 2⁻ᵏ: a carry that does not die out.
    NearOne,
}

/// The numbers that a parameter may have.
enum Domain {
    /// Random numbers in [−2, 2].
    Real,
    /// A decay: in [−1, 1].
    Decay,
    /// Entries of a 2×2 matrix or a complex number: in [−0.7, 0.7], so that products do not grow.
    Contraction,
    /// The logarithm of a decay: in [−1, 0].
    LogDecay,
    /// Near 1, so that long products stay in range.
    Factor,
    /// In [0.1, 1].
    Positive,
    /// In [−1, −0.1].
    Negative,
    /// Seldom true.
    Flag,
    /// In order, up to the size of the axis T.
    Offsets,
    /// Any bits.
    Bits,
    /// 0 … 7.
    Small,
}

fn domain(program: &Program, param: &Param) -> Domain {
    match (program.name.trim_end_matches("_bar"), param.name.as_str()) {
        (_, "cu_seqlens" | "cu_q" | "cu_k" | "offsets") => Domain::Offsets,
        _ if param.elem == Elem::Bool => Domain::Flag,
        ("automaton", "f") => Domain::Bits,
        _ if !param.elem.is_float() => Domain::Small,
        ("cumprod", "x") => Domain::Factor,
        ("matrix2", _) | (_, "ar" | "ai") => Domain::Contraction,
        (_, "g") => Domain::LogDecay,
        (name, "a") if ["mamba", "selective_scan", "ssd"].iter().any(|model| name.contains(model)) => Domain::Negative,
        (_, "a_re") => Domain::Negative,
        ("softmax_merge", "d") | (_, "alpha" | "delta" | "delta_bias" | "dt" | "dt_bias" | "cap") => Domain::Positive,
        ("max_plus", _) => Domain::Real,
        (_, "a") => Domain::Decay,
        _ => Domain::Real,
    }
}

/// The elements of a parameter, as its type stores them.
pub fn array(program: &Program, param: &Param, elem: Elem, sizes: &[usize], fill: Fill, rng: &mut Rng) -> Array {
    let shape: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
    let n = shape.iter().product();
    let elem = param.elem.in_call(elem);
    let domain = domain(program, param);
    let data = match elem.value() {
        Ty::Bool => Data::Bool((0..n).map(|_| rng.once_in(9)).collect()),
        ty if ty.is_int() => {
            let along = match param.name.as_str() {
                "cu_q" => program.axis("M"),
                "cu_k" => program.axis("N"),
                _ => program.axis("T").or(program.axis("L")),
            };
            let end = along.map_or(0, |axis| sizes[axis.0 as usize]);
            let mut data: Vec<i64> = (0..n).map(|_| integer(&domain, end, rng)).collect();
            if matches!(domain, Domain::Offsets) {
                data.sort_unstable();
            }
            Data::Int(data)
        }
        _ => Data::Float((0..n).map(|_| scalar::round(elem, float(&domain, fill, rng))).collect()),
    };
    Array { sizes: shape, data }
}

/// Cotangents: the elements of an output's shape.
pub fn cotangent(shape: &[usize], elem: Elem, fill: Fill, rng: &mut Rng) -> Array {
    let n: usize = shape.iter().product();
    let data: Vec<f64> = (0..n).map(|_| scalar::round(elem, float(&Domain::Real, fill, rng))).collect();
    Array::floats(shape, data)
}

fn integer(domain: &Domain, end: usize, rng: &mut Rng) -> i64 {
    match domain {
        Domain::Offsets => rng.below(end + 1) as i64,
        Domain::Bits => (rng.bits() & 0xffff_ffff) as i64,
        _ => rng.below(8) as i64,
    }
}

fn float(domain: &Domain, fill: Fill, rng: &mut Rng) -> f64 {
    match (fill, domain) {
        (Fill::Whole, Domain::Decay) => rng.below(3) as f64 - 1.0,
        (Fill::Whole, Domain::LogDecay) => [0.0, 0.0, f64::NEG_INFINITY][rng.below(3)],
        (Fill::Whole, Domain::Factor) => [-1.0, 1.0][rng.below(2)],
        (Fill::Whole, Domain::Contraction) => rng.below(2) as f64,
        (Fill::Whole, Domain::Positive) => 1.0,
        (Fill::Whole, Domain::Negative) => -1.0,
        (Fill::Whole, _) => rng.below(7) as f64 - 3.0,
        (Fill::NearOne, Domain::Decay) => 1.0 - 2f64.powi(-(4 + rng.below(9) as i32)),
        (Fill::NearOne, Domain::LogDecay) => -2f64.powi(-(4 + rng.below(9) as i32)),
        (_, Domain::Decay) => rng.between(-1.0, 1.0),
        (_, Domain::Contraction) => rng.between(-0.7, 0.7),
        (_, Domain::LogDecay) => rng.between(-1.0, 0.0),
        (_, Domain::Factor) => rng.between(-0.05, 0.05).exp() * [-1.0, 1.0][rng.below(2)],
        (_, Domain::Positive) => rng.between(0.1, 1.0),
        (_, Domain::Negative) => rng.between(-1.0, -0.1),
        _ => rng.between(-2.0, 2.0),
    }
}
