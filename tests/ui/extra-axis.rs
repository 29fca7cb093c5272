use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, Sum(x), init = x);
    }
}

fn main() {}
