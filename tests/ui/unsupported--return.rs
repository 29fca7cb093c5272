use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        return x;
        y = x;
    }
}

fn main() {}
