use oplus::scan;

scan! {
    op Own(k: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (tanh(l.s) + r.v * r.k);
    }
}

fn main() {}
