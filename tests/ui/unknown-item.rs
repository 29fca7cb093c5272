use oplus::scan;

scan! {
    struct Affine {
        a: f32,
    }
}

fn main() {}
