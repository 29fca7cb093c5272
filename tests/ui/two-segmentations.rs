use oplus::scan;

scan! {
    pub fn kernel(x: [T], cu: i32[S]) -> (y: [T]) {
        y = scan(T, segmented(Sum)(x), reset = x > 0, offsets = cu);
    }
}

fn main() {}
