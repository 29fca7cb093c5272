use oplus::scan;

scan! {
    op Add(s: f32) {
        identity (0 as f32);
        combine(l, r) (l.s + r.s);
    }
}

fn main() {}
