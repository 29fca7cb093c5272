use oplus::scan;

scan! {
    pub fn kernel(x: [T], a: [N]) -> (y: [T]) {
        y = x * sum(T, a);
    }
}

fn main() {}
