use oplus::scan;

scan! {
    op Add(s) where s + 1 {
        identity (0);
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
