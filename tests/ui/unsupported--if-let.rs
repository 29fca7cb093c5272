use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = if let a = x { a } else { x };
    }
}

fn main() {}
