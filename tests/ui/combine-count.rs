use oplus::scan;

scan! {
    op Pair(a, b) {
        identity (0, 0);
        combine(l, r) (l.a + r.a);
    }
}

fn main() {}
