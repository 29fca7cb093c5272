use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let mut a = x;
        y = x;
    }
}

fn main() {}
