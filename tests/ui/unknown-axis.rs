use oplus::scan;

scan! {
    pub fn kernel(x: [Tine]) -> (y: [Tine]) {
        y = x + sum(Time, x);
    }
}

fn main() {}
