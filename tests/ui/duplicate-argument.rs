use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, Sum(x), init = 0, init = 1);
    }
}

fn main() {}
