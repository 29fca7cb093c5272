use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = cumsum(T, x);
    }
}

fn main() {}
