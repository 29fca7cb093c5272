//! Messages that are polled: which words must come, and when all are there.

use super::{Y, builder, index, run, thread};
use crate::block::messages::{are_present, awaited, padded};
use crate::build::{Builder, f32};
use crate::tile::Operand;
use oplus_dsl::Elem;
use oplus_dsl::ir::Binary;

#[test]
fn messages_of_several_words_start_at_even_words() {
    assert_eq!([1, 2, 3, 4, 5].map(padded), [1, 2, 4, 4, 6]);
}

#[test]
fn messages_are_present_when_all_their_tags_have_come_or_none_is_wanted() {
    for words in [1, 2, 3] {
        let mut b = builder(32, Elem::F32);
        let own = thread(&mut b);
        let tag = b.var(Operand::u32(7)).into();
        let wanted = b.lt(own, 16);
        let message = awaited(&mut b, Operand::i64(0), words, wanted, tag);
        assert_eq!([message.values.len(), message.tags.len()], [words as usize; 2]);
        let rest = b.binary(Binary::Rem, own, 2);
        let is_even = b.eq(rest, 0);
        let show = |b: &mut Builder, k: i32| {
            let present = are_present(b, is_even, &message.tags, tag);
            let (at, value) = (index(b, own, 3, k), b.select(present, f32(1.0), f32(0.0)));
            b.store(Y, at, &[value], None);
        };
        show(&mut b, 0);
        // All words but the last come, then the last.
        let (last, others) = message.tags.split_last().expect("a word");
        others.iter().for_each(|own| b.assign(*own, tag));
        show(&mut b, 1);
        b.assign(*last, tag);
        show(&mut b, 2);
        let found = run(&b.finish(), &[0.0], 96);
        for lane in 0..32 {
            let (even, unwanted) = (lane % 2 == 0, lane >= 16);
            let present = [even && unwanted, even && unwanted, even].map(|yes| f64::from(u8::from(yes)));
            assert_eq!(found[3 * lane..3 * lane + 3], present, "{words} words, lane {lane}");
        }
    }
}
