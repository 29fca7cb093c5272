//! The text form of kernels: what is printed reads back as what it was.

mod library;
mod random;

use oplus_codegen::tile::Kernel;

/// Prints a kernel, reads the text and prints it again.
fn round_trip(kernel: &Kernel) {
    let text = kernel.to_string();
    let read: Kernel = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    if read != *kernel {
        let first = read.body.iter().zip(&kernel.body).find(|(a, b)| a != b);
        panic!("it reads as another kernel; {first:?}\n{text}");
    }
    assert_eq!(read.to_string(), text);
}
