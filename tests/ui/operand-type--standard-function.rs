use oplus::scan;

scan! {
    pub fn kernel(x: i32[T]) -> (y: i32[T]) {
        y = round(x);
    }
}

fn main() {}
