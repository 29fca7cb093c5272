use oplus::scan;

scan! {
    pub fn kernel(x: [B, T]) -> (y: [T]) {
        y = x;
    }
}

fn main() {}
