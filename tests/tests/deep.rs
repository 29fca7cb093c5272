//! A kernel of more than two thousand statements, each of the one before, through the macro itself.

#![deny(warnings)]
// Behind a `macro_rules!` macro clippy takes generated code for the user's.
#![allow(clippy::redundant_field_names)]

use oplus::{Tensor, scan};

/// Hands what it is given to another macro, eight times over.
macro_rules! eight {
    ($next:ident $($rest:ident)* { $($s:tt)* }) => {
        $next! { $($rest)* { $($s)* $($s)* $($s)* $($s)* $($s)* $($s)* $($s)* $($s)* } }
    };
}

macro_rules! kernel {
    ({ $($s:tt)* }) => {
        scan! {
            /// x⁴⁰⁹⁷, factor by factor.
            fn power(x: [T]) -> (y: [T]) {
                let a = x;
                $($s)*
                y = a;
            }
        }
    };
}

eight! { eight eight eight kernel { let a = a * x; } }

#[test]
fn thousands_of_statements_compile_and_run() {
    let x = Tensor::from_vec(vec![1.0_f32, -1.0], &[2]).expect("a tensor");
    let out = power(Power { x: x.clone() }).expect("outputs");
    assert_eq!(out.y.to_vec::<f32>().expect("floats"), [1.0, -1.0]);
    let gradients = out.backward(PowerCotangents { y: Some(x) }).expect("gradients");
    assert_eq!(gradients.x.to_vec::<f32>().expect("floats"), [4097.0, -4097.0]);
}
