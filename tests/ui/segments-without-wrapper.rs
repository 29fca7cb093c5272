use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, Sum(x), reset = x > 0);
    }
}

fn main() {}
