//! What is not used and is meant so gives no warning. A warning is an error here, so that building this file is half of the test.

#![deny(warnings)]

use oplus::{Tensor, scan};

scan! {
    pub op Exported(s) {
        identity (0);
        combine(l, r) (l.s + r.s);
    }

    op _Kept(s) {
        identity (0);
        combine(l, r) (l.s + r.s);
    }

    fn _kept(x) { x }

    fn first_of(x, _y) { x }

    /// The length of x is needed, its elements are not.
    pub fn positions(x: [T]) -> (y: i64[T]) {
        let _unused = 2 * x;
        y = index(T);
    }

    #[allow(unused_variables)]
    pub fn kernel(x: [T], scale: f32) -> (y: [T]) {
        let half = 0.5 * x;
        y = first_of(x, x);
    }
}

#[test]
fn what_is_meant_to_be_unused_is_silent_and_changes_nothing() -> Result<(), oplus::Error> {
    let x = Tensor::from_slice(&[3.0_f32, 5.0], &[2])?;
    let places = positions(Positions { x: x.clone() })?;
    assert_eq!(places.y.to_vec::<i64>()?, [0, 1]);
    let scale = Tensor::from_slice(&[7.0_f32], &[])?;
    let same = kernel(Kernel { x, scale })?;
    assert_eq!(same.y.to_vec::<f32>()?, [3.0, 5.0]);
    Ok(())
}
