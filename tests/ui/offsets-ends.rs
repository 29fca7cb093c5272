use oplus::scan;

scan! {
    pub fn kernel(x: [T], cu: i32[S]) -> (y: [S]) {
        y = last(T, scan(T, segmented(Sum)(x), offsets = cu), offsets = cu);
    }
}

fn main() {}
