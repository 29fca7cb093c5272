use oplus::scan;

scan! {
    fn both(x) -> (a, b) { x }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = both(x);
    }
}

fn main() {}
