use oplus::scan;

scan! {
    op Mean(m, n) {
        identity (0, 0);
        combine(l, r) ((l.m * l.n + r.m * r.n) / (l.n + r.n), l.n + r.n);
    }
}

fn main() {}
