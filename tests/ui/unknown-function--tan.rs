use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = tan(x);
    }
}

fn main() {}
