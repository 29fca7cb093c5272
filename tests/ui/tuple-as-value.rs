use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = exp((x, x));
    }
}

fn main() {}
