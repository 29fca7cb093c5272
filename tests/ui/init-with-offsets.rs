use oplus::scan;

scan! {
    pub fn kernel(x: [T], cu: i32[S]) -> (y: [T]) {
        y = scan(T, segmented(Sum)(x), init = 1, offsets = cu);
    }
}

fn main() {}
