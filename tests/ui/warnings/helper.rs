#![deny(unused, dead_code)]

use oplus::scan;

scan! {
    fn twice(x) { 2 * x }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x;
    }
}

fn main() {}
