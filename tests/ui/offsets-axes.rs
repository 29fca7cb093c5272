use oplus::scan;

scan! {
    pub fn kernel(x: [T], cu: i32[T]) -> (y: [T]) {
        y = scan(T, segmented(Sum)(x), offsets = cu);
    }
}

fn main() {}
