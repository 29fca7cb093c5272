use oplus::scan;

scan! {
    op Count(n: i32) {
        identity (0);
        gauge n;
        combine(l, r) (l.n + r.n);
    }
}

fn main() {}
