use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (n: i64[T]) {
        n = index(T) + 0.5;
    }
}

fn main() {}
