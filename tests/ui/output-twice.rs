use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x;
        y = x + 1;
    }
}

fn main() {}
