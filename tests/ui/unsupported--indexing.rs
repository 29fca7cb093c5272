use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x[0];
    }
}

fn main() {}
