#![deny(unused, dead_code)]

use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let half = 0.5 * x;
        y = x;
    }
}

fn main() {}
