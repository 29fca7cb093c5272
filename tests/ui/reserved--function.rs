use oplus::scan;

scan! {
    fn exp(x) { x }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x;
    }
}

fn main() {}
