use oplus::scan;

scan! {
    fn f0(x) { x + x }
    fn f1(x) { f0(x) + f0(x) }
    fn f2(x) { f1(x) + f1(x) }
    fn f3(x) { f2(x) + f2(x) }
    fn f4(x) { f3(x) + f3(x) }
    fn f5(x) { f4(x) + f4(x) }
    fn f6(x) { f5(x) + f5(x) }
    fn f7(x) { f6(x) + f6(x) }
    fn f8(x) { f7(x) + f7(x) }
    fn f9(x) { f8(x) + f8(x) }
    fn f10(x) { f9(x) + f9(x) }
    fn f11(x) { f10(x) + f10(x) }
    fn f12(x) { f11(x) + f11(x) }
    fn f13(x) { f12(x) + f12(x) }
    fn f14(x) { f13(x) + f13(x) }
    fn f15(x) { f14(x) + f14(x) }

    pub fn kernel(x: [T]) -> (y: [T]) {
        y = f15(x);
    }
}

fn main() {}
