#![deny(unused, dead_code)]

use oplus::scan;

scan! {
    op Unused(s) {
        identity (0);
        combine(l, r) (l.s + r.s);
    }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x;
    }
}

fn main() {}
