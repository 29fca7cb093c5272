#![deny(unused, dead_code)]

use oplus::scan;

scan! {
    pub fn kernel(x: [T], scale: f32) -> (y: [T]) {
        y = x;
    }
}

fn main() {}
