use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, ComplexAffine(x, x, x, x), init = 1).br;
    }
}

fn main() {}
