//! Programs that test and measure the project on a GPU. The tests that need none are in `tests/`.

pub mod bench;
pub mod check;
pub mod dist;
pub mod latency;
