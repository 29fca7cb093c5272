use oplus::scan;

scan! {
    op Delta(m: [K], s: [K]) {
        identity (1, 0);
        combine(l, r) (l.m * r.m, r.m * l.s + r.s);
    }
}

fn main() {}
