use oplus::scan;

scan! {
    op Positive(x) where x > 0 {
        identity (0);
        combine(l, r) (l.x + r.x);
    }
}

fn main() {}
