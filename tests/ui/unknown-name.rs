use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let decayed = x;
        y = decyed;
    }
}

fn main() {}
