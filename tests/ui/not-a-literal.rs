use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = powi(x, x);
    }
}

fn main() {}
