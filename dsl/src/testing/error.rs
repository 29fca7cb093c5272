//! How far results are from what is right.

use crate::interpret::Array;

/// The relative error ‖found − wanted‖ / ‖wanted‖ of floats, in the Euclidean norm; 0 where nothing is wanted and found.
pub fn relative_error(wanted: &Array, found: &Array) -> f64 {
    let (wanted, found) = (floats(wanted), floats(found));
    assert_eq!(wanted.len(), found.len(), "as many elements");
    let error = norm(wanted.iter().zip(found).map(|(wanted, found)| wanted - found));
    if error == 0.0 { 0.0 } else { error / norm(wanted.iter().copied()) }
}

fn floats(array: &Array) -> &[f64] {
    array.as_floats().expect("floats")
}

fn norm(all: impl Iterator<Item = f64>) -> f64 {
    all.map(|x| x * x).sum::<f64>().sqrt()
}
