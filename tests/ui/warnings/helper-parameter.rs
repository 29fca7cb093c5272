#![deny(unused, dead_code)]

use oplus::scan;

scan! {
    fn twice(x, unused) { 2 * x }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = twice(x, x);
    }
}

fn main() {}
