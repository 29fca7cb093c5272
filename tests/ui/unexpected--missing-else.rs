use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = if x > 0 { x };
    }
}

fn main() {}
