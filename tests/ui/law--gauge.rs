use oplus::scan;

scan! {
    op Pair(m, d) {
        identity (0, 0);
        gauge m;
        combine(l, r) (l.m + r.m, l.d + r.d);
    }
}

fn main() {}
