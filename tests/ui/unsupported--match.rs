use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = match x { _ => 0 };
    }
}

fn main() {}
