use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = 2.0f32 * x;
    }
}

fn main() {}
