//! Settings of a thread while a guard is alive.

use std::cell::Cell;
use std::marker::PhantomData;
use std::thread::LocalKey;

/// Counts itself on its thread while it is alive.
#[derive(Debug)]
pub(crate) struct Guard(&'static LocalKey<Cell<usize>>, PhantomData<*const ()>);

impl Guard {
    pub(crate) fn new(alive: &'static LocalKey<Cell<usize>>) -> Guard {
        alive.set(alive.get() + 1);
        Guard(alive, PhantomData)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static ALIVE: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn guards_nest_and_belong_to_their_thread() {
        assert_eq!(ALIVE.get(), 0);
        let outer = Guard::new(&ALIVE);
        drop(Guard::new(&ALIVE));
        assert_eq!(ALIVE.get(), 1);
        assert_eq!(std::thread::spawn(|| ALIVE.get()).join().unwrap(), 0);
        drop(outer);
        assert_eq!(ALIVE.get(), 0);
    }
}
