use oplus::scan;

scan! {
    fn nothing(x) { let a = x; }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = nothing(x);
    }
}

fn main() {}
