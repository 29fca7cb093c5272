use oplus::scan;

scan! {
    op Add(s) {
        identity (0);
        apply(l, r) (l.s + r.s);
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
