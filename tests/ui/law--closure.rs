use oplus::scan;

scan! {
    op Sat(m: u32) where m <= 255 {
        identity (0);
        combine(l, r) (l.m + r.m);
    }
}

fn main() {}
