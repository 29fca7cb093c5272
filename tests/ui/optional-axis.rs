use oplus::scan;

scan! {
    pub fn kernel(x: [T], b: [N] = 0) -> (y: [T]) {
        y = x + sum(N, b);
    }
}

fn main() {}
