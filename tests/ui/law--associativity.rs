use oplus::scan;

scan! {
    op Mean(m) {
        identity (0);
        combine(l, r) (if l.m == 0 { r.m } else { if r.m == 0 { l.m } else { 0.5 * (l.m + r.m) } });
    }
}

fn main() {}
