use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        if x > 0 { y = x; } else { y = -x; }
        y = x;
    }
}

fn main() {}
