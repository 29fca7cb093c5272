use oplus::scan;

scan! {
    op Add(s) {
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
