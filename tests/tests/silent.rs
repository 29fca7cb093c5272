//! Unused items give no warning if they are exported, if their names begin with an underscore, or if an attribute allows them. Every warning
//! is an error in this file, so it compiles only if there is none.

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
fn unused_items_change_no_result() -> Result<(), oplus::Error> {
    let x = Tensor::from_slice(&[3.0_f32, 5.0], &[2])?;
    let places = positions(Positions { x: x.clone() })?;
    assert_eq!(places.y.to_vec::<i64>()?, [0, 1]);
    let scale = Tensor::from_slice(&[7.0_f32], &[])?;
    let same = kernel(Kernel { x, scale })?;
    assert_eq!(same.y.to_vec::<f32>()?, [3.0, 5.0]);
    Ok(())
}
