use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = if 0 < x < 1 { x } else { 0 };
    }
}

fn main() {}
