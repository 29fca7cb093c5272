use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let a: f32 = x;
        y = x;
    }
}

fn main() {}
