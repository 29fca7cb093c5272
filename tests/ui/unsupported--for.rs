use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        for t in 0..10 { y = x; }
    }
}

fn main() {}
