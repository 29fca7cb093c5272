use oplus::scan;

scan! {
    pub fn kernel(beta: [T, K], k: [T, K], v: [T, V]) -> (y: [T, K, V]) {
        y = scan(T, DeltaRule(beta, k, v));
    }
}

fn main() {}
