use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = 0..10;
    }
}

fn main() {}
