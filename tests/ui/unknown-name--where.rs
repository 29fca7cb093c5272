use oplus::scan;

scan! {
    op Add(s) where t >= 0 {
        identity (0);
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
