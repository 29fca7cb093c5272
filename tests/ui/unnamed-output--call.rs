use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> [T] {
        2 * x
    }
}

fn main() {}
