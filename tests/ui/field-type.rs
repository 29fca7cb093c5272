use oplus::scan;

scan! {
    op Count(n: i32) {
        identity (0);
        combine(l, r) (exp(l.n as f32) + exp(r.n as f32));
    }
}

fn main() {}
