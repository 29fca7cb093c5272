use oplus::scan;

scan! {
    pub fn kernel(x: [T], x: [T]) -> (y: [T]) {
        y = scan(T, Sum(x));
    }
}

fn main() {}
