//! Fields as message words and back.

use super::thread;
use crate::block::carry::{from_words, to_words, words};
use crate::build::Builder;
use crate::simulate::{Buffer, Launch, Memory, Options, simulate};
use crate::tile::{Memory as Place, ParamKind};
use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

/// Stores the words of one field of a type, and the field made of them; gives the words and the field's bytes.
fn there_and_back(elem: Elem, values: &[Literal]) -> (Vec<u32>, Vec<u8>) {
    let ty = elem.value();
    let count = words(&[ty]);
    let mut b = Builder::new("k", 32);
    let x = Place::Global(b.param("x", ParamKind::Read(elem)));
    let y = Place::Global(b.param("y", ParamKind::Write(elem)));
    let w = Place::Global(b.param("w", ParamKind::Write(Elem::U32)));
    let own = thread(&mut b);
    let here = b.lt(own, values.len());
    b.if_(here, |b| {
        let at = b.convert(Ty::I64, own);
        let field = b.load1(x, at);
        let words = to_words(b, &[field]);
        for (k, word) in (0..).zip(&words) {
            let place = super::index(b, own, count as i32, k);
            b.store(w, place, &[*word], None);
        }
        let back = from_words(b, &[ty], &words);
        b.store(y, at, &back, None);
    });
    let mut memory = Memory::new();
    let input = memory.add(Buffer::of(elem, values.iter().copied()));
    let output = memory.add(Buffer::unwritten(elem, values.len()));
    let made = memory.add(Buffer::unwritten(Elem::U32, values.len() * count as usize));
    let launch = Launch { grid: [1, 1], args: vec![input.into(), output.into(), made.into()] };
    let kernel = b.finish();
    simulate(&kernel, &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    let bytes = memory.buffer(made).bytes().chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("four")));
    (bytes.collect(), memory.buffer(output).bytes().to_vec())
}

#[test]
fn every_type_survives_as_words() {
    let floats = [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, -1e-30].map(Literal::Float);
    let whole = [0, 1, -1, 7, i64::from(i32::MIN), i64::from(i32::MAX)].map(Literal::Int);
    let long = [0, 1, -1, i64::MIN, i64::MAX, 0x1234_5678_9abc_def0].map(Literal::Int);
    let truths = [true, false].map(Literal::Bool);
    let cases: [(Elem, &[Literal]); 7] = [
        (Elem::F32, &floats),
        (Elem::F64, &floats),
        (Elem::I32, &whole),
        (Elem::U32, &whole),
        (Elem::I64, &long),
        (Elem::U64, &long),
        (Elem::Bool, &truths),
    ];
    for (elem, values) in cases {
        let (words, back) = there_and_back(elem, values);
        let bytes = Buffer::of(elem, values.iter().copied()).bytes().to_vec();
        assert_eq!(back, bytes, "{elem}");
        // A word is 32 bits of the field, the low ones first; a truth value is 0 or 1.
        let size = bytes.len() / values.len();
        let expected: Vec<u32> = match size {
            1 => bytes.iter().map(|b| u32::from(*b)).collect(),
            _ => bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("four"))).collect(),
        };
        assert_eq!(words, expected, "{elem}");
    }
}

#[test]
fn words_are_counted_by_type() {
    assert_eq!(words(&[Ty::F32, Ty::F64, Ty::Bool, Ty::I64]), 6);
    assert_eq!(words(&[]), 0);
}
