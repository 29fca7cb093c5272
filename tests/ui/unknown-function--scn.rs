use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scn(T, Sum(x));
    }
}

fn main() {}
