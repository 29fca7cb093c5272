use oplus::scan;

scan! {
    op Add(s) {
        identity (1);
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
