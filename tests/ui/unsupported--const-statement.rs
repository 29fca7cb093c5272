use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        const A: f32 = 2.0;
        y = x;
    }
}

fn main() {}
