use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = x ** 2;
    }
}

fn main() {}
