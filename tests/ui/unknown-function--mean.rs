use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x - mean(T, x);
    }
}

fn main() {}
