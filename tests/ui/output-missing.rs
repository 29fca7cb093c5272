use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T], z: [T]) {
        y = x;
    }
}

fn main() {}
