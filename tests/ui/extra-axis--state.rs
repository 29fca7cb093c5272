use oplus::scan;

scan! {
    pub fn kernel(beta: [T], k: [T, K], v: [T, V], s0: [T, K, V]) -> (y: [T, K, V]) {
        y = scan(T, DeltaRule(beta, k, v), init = s0);
    }
}

fn main() {}
