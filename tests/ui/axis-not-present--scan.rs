use oplus::scan;

scan! {
    pub fn kernel(x: [T], a: [N]) -> (y: [T, N]) {
        y = x + scan(T, Sum(a));
    }
}

fn main() {}
