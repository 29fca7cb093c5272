use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> f32[T] {
        y = x;
    }
}

fn main() {}
