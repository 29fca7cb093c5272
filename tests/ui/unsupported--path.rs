use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = f32::exp(x);
    }
}

fn main() {}
