use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, Afine(x, x)).b;
    }
}

fn main() {}
