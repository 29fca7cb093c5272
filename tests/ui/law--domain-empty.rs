use oplus::scan;

scan! {
    op Nothing(x) where x * x == 0 {
        identity (0);
        combine(l, r) (l.x + r.x);
    }
}

fn main() {}
