use oplus::scan;

scan! {
    fn twice(x) { z = x + x; x }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = twice(x);
    }
}

fn main() {}
