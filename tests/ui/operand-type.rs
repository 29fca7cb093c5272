use oplus::scan;

scan! {
    pub fn kernel(x: [T], n: i32[T]) -> (y: [T]) {
        y = x + exp(n) as f32;
    }
}

fn main() {}
