use oplus::scan;

scan! {
    op Leaky(s) {
        identity (0);
        combine(l, r) (l.s + r.s);
    }

    pub fn leaky(x: [T]) -> (y: [T]) {
        y = scan(T, Leaky(x));
    }
}

fn main() {}
