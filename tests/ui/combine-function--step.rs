use oplus::scan;

scan! {
    op Own(k: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (l.s + r.v * r.k + scan(K, Sum(r.k)));
    }
}

fn main() {}
