use oplus::scan;

scan! {
    pub fn kernel(x: [T]) -> (n: i64[T]) {
        n = scan(T, LogSumExp(index(T)));
    }
}

fn main() {}
