//! Sequences that lie one behind the other, and the tiles of their times, against plain loops.

use super::{X, Y, builder, index, run, thread};
use crate::block::sequence::Offsets;
use crate::build::{Builder, zero};
use crate::tile::{Kernel, Operand};
use oplus_dsl::ir::Axis;
use oplus_dsl::{Elem, Ty};

/// The numbers that the kernel writes of each sequence.
const FACTS: i32 = 5;

fn offsets() -> Offsets {
    Offsets { memory: X, stride: Operand::i64(1), zero: zero(Ty::I32) }
}

/// Stores one of several numbers of the thread.
fn store(b: &mut Builder, own: Operand, (of_each, k): (i32, i32), value: Operand) {
    let (at, value) = (index(b, own, of_each, k), b.convert(Ty::I32, value));
    b.store(Y, at, &[value], None);
}

/// A kernel whose threads are the sequences between and around the offsets x: the first time, the number of times, whether it is one
/// of the program's, its number among these, and among all.
fn sequences(count: i64, times: i64) -> Kernel {
    let mut b = builder(32, Elem::I32);
    let own = thread(&mut b);
    let is_one = b.lt(own, Operand::i32(count as i32));
    b.if_(is_one, |b| {
        let number = b.convert(Ty::I64, own);
        let found = offsets().sequence(b, number, Operand::i64(count), (Axis(0), Operand::i64(times)));
        let has_states = b.select(found.has_states, Operand::i32(1), Operand::i32(0));
        let facts = [found.first, found.len, has_states, found.number, found.order];
        (0..).zip(facts).for_each(|(k, fact)| store(b, own, (FACTS, k), fact));
    });
    b.finish()
}

/// A kernel whose threads are places of tiles: the number of the place's sequence.
fn sequences_of_tiles(count: i64, times: i64, tile: u32) -> Kernel {
    let mut b = builder(32, Elem::I32);
    let own = thread(&mut b);
    let place = b.convert(Ty::I64, own);
    let found = offsets().of_tile(&mut b, place, Operand::i64(count), (Operand::i64(times), tile));
    store(&mut b, own, (1, 0), found);
    b.finish()
}

/// Lists of offsets, and how many times there are. Offsets beyond the times count as their ends.
const LISTS: [(&[i64], i64); 5] =
    [(&[0, 5, 9], 9), (&[0, 0, 7, 7, 20], 20), (&[3, 4], 11), (&[0, 30], 12), (&[2, 2, 2], 5)];

/// The first time of each of all sequences, and the end of the last.
fn borders(list: &[i64], times: i64) -> Vec<i64> {
    let inside = list.iter().map(|at| *at.clamp(&0, &times));
    [0].into_iter().chain(inside).chain([times]).collect()
}

fn floats(list: &[i64]) -> Vec<f64> {
    list.iter().map(|at| *at as f64).collect()
}

#[test]
fn sequences_lie_between_and_around_their_offsets() {
    for (list, times) in LISTS {
        let borders = borders(list, times);
        let count = list.len() as i64 + 1;
        let found = run(&sequences(count, times), &floats(list), (count * i64::from(FACTS)) as usize);
        let facts = |n: i64| {
            let (first, end) = (borders[n as usize], borders[n as usize + 1]);
            let is_own = n > 0 && n < count - 1;
            [first, end.max(first) - first, i64::from(is_own), if is_own { n - 1 } else { 0 }, n]
        };
        let wanted: Vec<f64> = (0..count).flat_map(facts).map(|fact| fact as f64).collect();
        assert_eq!(found, wanted, "{list:?} of {times}");
    }
}

#[test]
fn each_tile_has_a_place_and_each_place_the_sequence_whose_tiles_begin_before_it() {
    for (list, times) in LISTS {
        for tile in [1, 2, 4, 16] {
            let borders = borders(list, times);
            let count = list.len() as i64 + 1;
            let places: Vec<i64> = (0..count).map(|n| borders[n as usize] / i64::from(tile) + n).collect();
            let found = run(&sequences_of_tiles(count, times, tile), &floats(list), 32);
            let wanted = |place: i64| places.iter().rposition(|first| *first <= place).expect("the first is at 0");
            let wanted: Vec<f64> = (0..32).map(|place| wanted(place) as f64).collect();
            assert_eq!(found, wanted, "{list:?} of {times}, tiles of {tile}");
            // Tiles of one sequence end before those of the next begin.
            for n in 0..count as usize - 1 {
                let tiles = (borders[n + 1] - borders[n]).max(0) as u64;
                assert!(
                    places[n] + tiles.div_ceil(u64::from(tile)) as i64 <= places[n + 1],
                    "{list:?}, tiles of {tile}"
                );
            }
        }
    }
}
