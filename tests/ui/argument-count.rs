use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = max(x);
    }
}

fn main() {}
