use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        let inf = x;
        y = inf;
    }
}

fn main() {}
