//! Work that has been started and is not over: copies, bulk stores, products of warpgroups.

use super::lanes::Lanes;
use crate::tile::{Panels, Reg};

/// Rows of a left factor.
pub(super) const ROWS: usize = 16;

/// A copy between global and shared memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copy {
    /// Its number among all copies of the launch.
    pub id: u32,
    /// The statement that started it.
    pub at: u32,
    /// The thread that started it.
    pub thread: usize,
    /// The global buffer and the element there.
    pub global: (usize, usize),
    /// The shared array and the element there.
    pub shared: (usize, usize),
    /// The number of elements.
    pub count: usize,
    /// Whether zeros are written instead of what is in global memory.
    pub zeros: bool,
    /// Whether it adds to what is in global memory.
    pub adds: bool,
}

/// A bulk store of a thread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub copy: Copy,
    /// Whether it has happened.
    pub landed: bool,
    /// The stage of the thread's wait for it.
    pub waited: Waited,
}

/// The stage of a thread's wait for a bulk store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waited {
    /// Not at all.
    No,
    /// Its source has been read.
    Read,
    /// Its destination has been written.
    Complete,
}

/// A product that has started.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub sums: Vec<Reg>,
    /// The sums before it.
    pub totals: Vec<Lanes>,
    pub steps: Vec<(Rows, Place)>,
    pub transposed: bool,
}

/// The warp's rows of a left factor.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    Known(Vec<[f32; ROWS]>),
    Shared(Place),
}

/// A factor in shared memory and the index of its first element.
pub(super) type Place = (Panels, i64);
