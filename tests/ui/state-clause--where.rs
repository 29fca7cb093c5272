use oplus::scan;

scan! {
    op Own(k: [K], v: [V]) -> (s: [V, K]) where k > 0 {
        combine(l, r) (l.s + r.v * r.k);
    }
}

fn main() {}
