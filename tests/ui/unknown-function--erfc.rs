use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = erfc(x);
    }
}

fn main() {}
