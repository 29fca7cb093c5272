use oplus::scan;

scan! {
    fn again(x) { again(x) }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = again(x);
    }
}

fn main() {}
