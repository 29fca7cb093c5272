use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (n: i32[T]) {
        n = index(T);
    }
}

fn main() {}
