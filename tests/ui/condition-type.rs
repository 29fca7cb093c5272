use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = if x { x } else { 0 };
    }
}

fn main() {}
