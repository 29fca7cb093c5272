use oplus::scan;

scan! {
    op Capped(m) where m <= 1000000 {
        identity (0);
        combine(l, r) (min(l.m + r.m, 1000000));
    }
}

fn main() {}
