use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = shift(T, x, 1, fill = x);
    }
}

fn main() {}
