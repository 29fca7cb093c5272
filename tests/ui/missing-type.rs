use oplus::scan;

scan! {
    pub fn kernel(x: [T], z) -> (y: [T]) {
        y = scan(T, Sum(x));
    }
}

fn main() {}
