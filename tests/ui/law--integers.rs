use oplus::scan;

scan! {
    op Mixed(a: i32, b: i32) {
        identity (0, 1);
        combine(l, r) (l.a + r.a - l.a * r.a * r.a, l.b * r.b);
    }
}

fn main() {}
