use oplus::scan;

scan! {
    pub fn kernel(n: i32[T]) -> (y: [T]) {
        y = exp(n as f32);
    }
}

fn main() {}
