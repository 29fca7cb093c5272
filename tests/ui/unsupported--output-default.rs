use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T] = 0) {
        y = x;
    }
}

fn main() {}
