use oplus::scan;

scan! {
    op Delta(k, s) {
        identity (0, 0);
        combine(l, r) (r.k, l.s + sum(K, l.s * r.k));
    }
}

fn main() {}
