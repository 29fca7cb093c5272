use oplus::scan;

scan! {
    pub fn kernel(x: [T, K, J]) -> (y: [T, J]) {
        y = sum(K, rename(x, K = J));
    }
}

fn main() {}
