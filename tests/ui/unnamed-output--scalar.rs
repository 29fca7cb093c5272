use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> f32 {
        total = sum(T, x);
    }
}

fn main() {}
