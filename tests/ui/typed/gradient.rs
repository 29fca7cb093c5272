use oplus::kernels::{Affine, Cumsum, CumsumCotangents, affine, cumsum};
use oplus::{Tensor, scan};

scan! {
    pub fn counts(x: i32[T]) -> (y: i32[T]) {
        y = x + 1;
    }
}

fn cotangents_of_another_kernel(inputs: Affine, cotangents: CumsumCotangents) {
    let _ = affine::gradient().call(inputs, cotangents);
}

fn a_tensor_in_place_of_a_struct(inputs: Cumsum, cotangents: CumsumCotangents, bar: Tensor) {
    let _ = cumsum::gradient().call(inputs, cotangents).unwrap().backward(bar);
}

fn main() {
    let _ = counts::gradient();
}
