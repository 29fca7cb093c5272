#![deny(warnings)]

use oplus::scan;

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

fn main() {}
