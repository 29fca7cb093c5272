use oplus::scan;

scan! {
    pub fn kernel(self: [T]) -> (y: [T]) {
        y = self;
    }
}

fn main() {}
