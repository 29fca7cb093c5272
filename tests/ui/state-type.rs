use oplus::scan;

scan! {
    op Own(k: f32[K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (l.s + r.v * r.k);
    }
}

fn main() {}
