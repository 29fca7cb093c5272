use oplus::scan;

scan! {
    op Add(s) {
        identity (0, 0);
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
