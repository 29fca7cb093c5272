use oplus::scan;

scan! {
    op Nothing() {
        identity ();
        combine(l, r) ();
    }
}

fn main() {}
