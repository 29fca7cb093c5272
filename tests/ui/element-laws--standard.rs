use oplus::scan;

scan! {
    fn scores(a: i64[T], b: i64[T]) -> (h: i64[T]) {
        h = scan(T, MaxPlus(a, b)).b;
    }
}

fn main() {}
