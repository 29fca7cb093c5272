use oplus::scan;

scan! {
    pub fn kernel(x: [T]) {
        let y = x;
    }
}

fn main() {}
