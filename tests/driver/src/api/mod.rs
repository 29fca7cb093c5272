//! The C interface.

mod device;
mod events;
mod graphs;
mod memory;
mod modules;
mod report;

use std::ffi::{CStr, c_char};

/// Declares functions of the driver. A body sees the state and gives a result; `subject` names what it frees.
macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) $([$subject:expr])? |$state:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::Code {
            #[allow(unused_mut, unused_assignments)]
            let mut subject = 0;
            $(subject = $subject;)?
            $crate::state::call(stringify!($name), subject, |$state| {
                $body;
                #[allow(unreachable_code)]
                Ok(())
            })
        }
    )*};
}
use driver;

/// Writes a result to where the caller wants it, if anywhere.
fn put<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: the caller gives room for the result.
        unsafe { target.write(value) };
    }
}

/// An element of an array of the caller's.
fn element<T: Copy>(array: *const T, at: usize) -> T {
    // SAFETY: the caller's array has that many elements.
    unsafe { array.add(at).read_unaligned() }
}

/// A text of the caller's that ends in a zero.
fn text(text: *const c_char) -> String {
    // SAFETY: the caller gives such a text.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
