use oplus::scan;

scan! {
    op Last(value, has: bool) {
        identity (0, false);
        combine(l, r) (if r.has { r.value } else { l.value }, l.has || r.has);
    }
}

fn main() {}
