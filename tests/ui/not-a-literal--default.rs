use oplus::scan;

scan! {
    pub fn kernel(x: [T], n: f32 = x) -> (y: [T]) {
        y = scan(T, Sum(x));
    }
}

fn main() {}
