use oplus::scan;

scan! {
    op Best(a, b) {
        identity (0, -inf);
        combine(l, r) (l.a + r.a, max(l.b + r.a, r.b));
    }

    fn scores(a: i32[T], b: i32[T]) -> (h: i32[T]) {
        h = scan(T, Best(a, b)).b;
    }
}

fn main() {}
