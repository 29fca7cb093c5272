use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: []) {
        y = reduce(T, segmented(Sum)(x));
    }
}

fn main() {}
