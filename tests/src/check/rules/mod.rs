//! The rules by which other libraries judge low precision, with their lengths and shapes.
//!
//! * Attention ([`attention`]): flash attention's rule, an error of at most twice that of a plain implementation in the same
//!   type against high precision, three times for gradients; for `f32` [`attention::SINGLE`] times.
//! * Recurrences of matrices ([`linear`]): the rule of flash-linear-attention, a root mean square error of at most 0.005 of
//!   the root mean square; also over [many times](long), and of [delta rules](delta).

pub mod attention;
pub mod delta;
pub mod gated;
pub mod layers;
pub mod linear;
pub mod long;
pub mod recurrence;
pub mod softmax;

use oplus::{Device, Elem, Error, Tensor};
use oplus_dsl::interpret::Data;
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar;

use super::case::Extent;
use super::data::{download, host};
use super::scenario::Scenario;

/// All scenarios of rules.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    match extent {
        Extent::Quick => vec![],
        _ => attention::scenarios(extent)
            .into_iter()
            .chain(linear::scenarios(extent))
            .chain(delta::scenarios(extent))
            .chain([long::scenario()])
            .collect(),
    }
}

/// Random numbers of an element type with mean 0 and variance 1.
fn numbers(elem: Elem, len: usize, rng: &mut Rng) -> Vec<f64> {
    const REACH: f64 = 1.732;
    (0..len).map(|_| scalar::round(elem, rng.between(-REACH, REACH))).collect()
}

/// A tensor of these numbers, floats or `i32`.
pub(super) fn tensor(elem: Elem, shape: &[usize], numbers: &[f64], device: &Device) -> Result<Tensor, Error> {
    let data = match elem {
        Elem::I32 => Data::Int(numbers.iter().map(|x| *x as i64).collect()),
        _ => Data::Float(numbers.to_vec()),
    };
    host(elem, &data)?.reshape(shape)?.to_device(device)
}

/// The numbers of a tensor.
pub(super) fn floats(tensor: &Tensor) -> Result<Vec<f64>, Error> {
    let flat = tensor.reshape(&[tensor.len()])?;
    Ok(match download(&flat)? {
        Data::Float(numbers) => numbers,
        Data::Int(numbers) => numbers.into_iter().map(|i| i as f64).collect(),
        Data::Bool(numbers) => numbers.into_iter().map(|b| f64::from(u8::from(b))).collect(),
    })
}
