use oplus::scan;

scan! {
    op Count(n: i64) where n >= 0 {
        identity (0);
        combine(l, r) (l.n + r.n);
    }
}

fn main() {}
