use oplus::scan;

scan! {
    pub fn kernel(beta: [T], k: [T, N], v: [T, V]) -> (y: [T, N, V]) {
        y = scan(T, DeltaRule(beta, k, v));
    }
}

fn main() {}
