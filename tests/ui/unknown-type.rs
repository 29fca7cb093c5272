use oplus::scan;

scan! {
    pub fn kernel(x: float32[T]) -> (y: [T]) {
        y = scan(T, Sum(x));
    }
}

fn main() {}
