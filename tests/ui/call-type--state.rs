use oplus::scan;

scan! {
    pub fn kernel(n: i32[T], h0: state) -> (y: f32[T]) {
        y = exp(n as f32 * h0);
    }
}

fn main() {}
