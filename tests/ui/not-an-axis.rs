use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(2, Sum(x));
    }
}

fn main() {}
