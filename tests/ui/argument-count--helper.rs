use oplus::scan;

scan! {
    fn mean(a, b) { 0.5 * (a + b) }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = mean(x);
    }
}

fn main() {}
