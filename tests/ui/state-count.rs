use oplus::scan;

scan! {
    op Own(k: [K], v: [V]) -> (s: [V, K], n: [K]) {
        combine(l, r) (l.s + r.v * r.k);
    }
}

fn main() {}
