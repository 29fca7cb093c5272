//! Walks over what values are computed from, with lists of work in place of recursion: expressions may be of any depth.

use std::collections::HashSet;

use crate::ir::{Program, Value};

/// Values to be emitted, in the order in which a recursion over operands would emit them.
pub struct WorkList<K> {
    /// Keys, and whether what they wait for is made.
    open: Vec<(K, bool)>,
}

impl<K> WorkList<K> {
    /// One key is to be made, with all that it waits for.
    pub fn of(key: K) -> WorkList<K> {
        WorkList { open: vec![(key, false)] }
    }

    /// The next key to be made. `waits_for` says what a key waits for, in order; `None` if the key is made already.
    pub fn next(&mut self, mut waits_for: impl FnMut(&K) -> Option<Vec<K>>) -> Option<K> {
        while let Some((key, is_ready)) = self.open.pop() {
            if is_ready {
                return Some(key);
            }
            if let Some(before) = waits_for(&key) {
                self.open.push((key, true));
                self.open.extend(before.into_iter().rev().map(|key| (key, false)));
            }
        }
        None
    }
}

/// Whether something holds of a value: `judge` knows, or it is what holds of all operands (`None`).
pub fn all(program: &Program, value: Value, judge: impl Fn(Value) -> Option<bool>) -> bool {
    let (mut seen, mut open) = (HashSet::from([value]), vec![value]);
    while let Some(value) = open.pop() {
        match judge(value) {
            Some(true) => {}
            Some(false) => return false,
            None => open.extend(program.node(value).op.operands().into_iter().filter(|v| seen.insert(*v))),
        }
    }
    true
}

/// Whether something is found at a value or at what it is computed from.
pub fn any(program: &Program, value: Value, is_found: impl Fn(Value) -> bool) -> bool {
    !all(program, value, |value| is_found(value).then_some(false))
}

/// Follows a value as long as `next` gives another one: where that ends.
pub fn follow(mut value: Value, mut next: impl FnMut(Value) -> Option<Value>) -> Value {
    while let Some(further) = next(value) {
        value = further;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Deep;

    #[test]
    fn keys_are_made_in_the_order_of_a_recursion() {
        // 0 waits for 1 and 2, both for 3; what is made is not made again.
        let before = |key: u32| match key {
            0 => vec![1, 2],
            1 => vec![3],
            2 => vec![3, 4],
            _ => vec![],
        };
        let (mut made, mut work) = (vec![], WorkList::of(0));
        while let Some(key) = work.next(|key| (!made.contains(key)).then(|| before(*key))) {
            made.push(key);
        }
        assert_eq!(made, [3, 1, 4, 2, 0]);
    }

    #[test]
    fn shared_operands_are_searched_once() {
        let program = Deep::Squares.program(1_000);
        let last = program.outputs[0].value;
        assert!(all(&program, last, |_| None));
        assert!(!any(&program, last, |_| false));
        assert!(any(&program, last, |value| value == Value(0)));
    }
}
