use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let a = x;
        a += 1;
        y = a;
    }
}

fn main() {}
