use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (n: i64) {
        n = sum(T, x > 0);
    }
}

fn main() {}
