use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, Affine(x, x)).c;
    }
}

fn main() {}
