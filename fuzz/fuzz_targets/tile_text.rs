//! The text of a tile kernel: an error, or a kernel that prints to a text which reads back to it, and can be judged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oplus_codegen::target::Target;
use oplus_codegen::tile::Kernel;
use oplus_codegen::verify::verify;

fuzz_target!(|text: &str| {
    let Ok(kernel) = text.parse::<Kernel>() else { return };
    assert_eq!(kernel.to_string().parse().as_ref(), Ok(&kernel));
    let _ = verify(&kernel, &Target::H200);
});
