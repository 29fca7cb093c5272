use oplus::scan;

scan! {
    op Own(k: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (sum(K, l.s * r.k) + sum(V, l.s * r.v));
    }
}

fn main() {}
