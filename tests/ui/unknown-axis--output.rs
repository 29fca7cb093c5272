use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T, K]) {
        y = x;
    }
}

fn main() {}
