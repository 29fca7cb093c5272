use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = gelu(x);
    }
}

fn main() {}
