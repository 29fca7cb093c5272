//! Nothing: the features of its dependencies are all that this crate is for.

fn main() {}
