use oplus::scan;

scan! {
    pub fn kernel(beta: [T], k: [T, N], v: [T, N]) -> (y: [T, N]) {
        y = scan(T, DeltaRule(beta, k, v, K = N, V = N));
    }
}

fn main() {}
