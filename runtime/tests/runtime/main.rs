//! Tests of the runtime as a user meets it.

mod calls;
mod common;
mod cuda;
mod dependencies;
mod depth;
mod element_types;
mod explain;
mod foreign;
mod given;
mod gradients;
mod growth;
mod lost;
mod memory;
mod ordered;
mod packed;
mod parts;
mod second;
mod sizes;
mod tape;
mod tensors;
mod texts;
mod typed;
mod unmaintained;
mod views;
