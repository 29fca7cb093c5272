use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = log(x);
    }
}

fn main() {}
