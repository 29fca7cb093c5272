use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (y: [T]) {
        y = scan(T, segmant(Sum)(x));
    }
}

fn main() {}
