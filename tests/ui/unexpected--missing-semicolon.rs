use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let a = x
        y = a;
    }
}

fn main() {}
