use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let a = x;
        for t in 0..10 { y = x; }
        y = a;
    }
}

fn main() {}
