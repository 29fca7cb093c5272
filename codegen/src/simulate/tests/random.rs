//! Random structured programs: 64 threads in lockstep must compute what each computes alone.

use super::*;
use crate::tile::Reg;
use oplus_dsl::ir::Binary;
use oplus_dsl::scalar;
use proptest::prelude::*;

/// Registers of a random program; all start with numbers of the thread.
const REGS: usize = 4;

/// A statement of a random program, on `i32` registers.
#[derive(Clone, Debug)]
enum Act {
    /// r[dst] = r[a] op r[b].
    Compute(Binary, usize, usize, usize),
    /// Two branches on r[a] < r[b].
    If(usize, usize, Vec<Act>, Vec<Act>),
    /// A loop of this many iterations more than r[a] mod 4; the number of the iteration goes to a register.
    For(usize, usize, Vec<Act>),
    /// At most so many iterations.
    Loop(i32, Vec<Act>),
    /// Leaves the innermost endless loop, if there is one, where r[a] < r[b].
    Break(usize, usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let reg = 0..REGS;
    let op = prop::sample::select(vec![
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Xor,
        Binary::Max,
        Binary::Rem,
        Binary::Shr,
    ]);
    let leaf = prop_oneof![
        4 => (op, reg.clone(), reg.clone(), reg.clone()).prop_map(|(op, d, a, b)| Act::Compute(op, d, a, b)),
        1 => (reg.clone(), reg.clone()).prop_map(|(a, b)| Act::Break(a, b)),
    ];
    let tree = leaf.prop_recursive(4, 40, 5, move |inner| {
        let list = prop::collection::vec(inner, 0..5);
        prop_oneof![
            (reg.clone(), reg.clone(), list.clone(), list.clone()).prop_map(|(a, b, t, e)| Act::If(a, b, t, e)),
            (reg.clone(), reg.clone(), list.clone()).prop_map(|(a, d, l)| Act::For(a, d, l)),
            (1..4, list).prop_map(|(n, l)| Act::Loop(n, l)),
        ]
    });
    prop::collection::vec(tree, 1..8)
}

/// Writes the program for all threads.
fn emit(b: &mut Builder, regs: &[Reg], acts: &[Act], in_loop: bool) {
    for act in acts {
        match act {
            Act::Compute(op, dst, x, y) => {
                let value = b.binary(*op, regs[*x].into(), regs[*y]);
                b.assign(regs[*dst], value);
            }
            Act::If(x, y, then, otherwise) => {
                let less = b.lt(regs[*x].into(), regs[*y]);
                b.if_else(less, |b| emit(b, regs, then, in_loop), |b| emit(b, regs, otherwise, in_loop));
            }
            Act::For(x, dst, body) => {
                let extra = b.binary(Binary::And, regs[*x].into(), Operand::i32(3));
                let iterations = b.add(extra, Operand::i32(1));
                b.for_(Operand::i32(0), iterations, Operand::i32(1), |b, i| {
                    b.assign(regs[*dst], i);
                    emit(b, regs, body, in_loop);
                });
            }
            Act::Loop(iterations, body) => {
                let iteration = b.var(Operand::i32(0));
                b.loop_(|b| {
                    let over = b.ge(iteration.into(), Operand::i32(*iterations));
                    b.break_if(over);
                    let next = b.add(iteration.into(), Operand::i32(1));
                    b.assign(iteration, next);
                    emit(b, regs, body, true);
                });
            }
            Act::Break(x, y) if in_loop => {
                let less = b.lt(regs[*x].into(), regs[*y]);
                b.break_if(less);
            }
            Act::Break(..) => {}
        }
    }
}

/// Runs the program for one thread; whether it has left a loop.
fn interpret(regs: &mut [i32; REGS], acts: &[Act], in_loop: bool) -> bool {
    acts.iter().any(|act| match act {
        Act::Compute(op, dst, x, y) => {
            let value = scalar::int_binary(*op, Ty::I32, i64::from(regs[*x]), i64::from(regs[*y]));
            regs[*dst] = value as i32;
            false
        }
        Act::If(x, y, then, otherwise) => {
            let branch = if regs[*x] < regs[*y] { then } else { otherwise };
            interpret(regs, branch, in_loop)
        }
        Act::For(x, dst, body) => (0..(regs[*x] & 3) + 1).any(|i| {
            regs[*dst] = i;
            interpret(regs, body, in_loop)
        }),
        Act::Loop(iterations, body) => {
            let _left = (0..*iterations).any(|_| interpret(regs, body, true));
            false
        }
        Act::Break(x, y) => in_loop && regs[*x] < regs[*y],
    })
}

fn start(thread: i32) -> [i32; REGS] {
    [thread, thread * 7 % 13, 5 - thread, 3]
}

fn kernel(acts: &[Act]) -> Kernel {
    let mut b = builder();
    let (thread, wide) = thread(&mut b);
    let seven = b.mul(thread, Operand::i32(7));
    let values =
        [thread, b.binary(Binary::Rem, seven, Operand::i32(13)), b.sub(Operand::i32(5), thread), Operand::i32(3)];
    let regs = values.map(|v| b.var(v));
    emit(&mut b, &regs, acts, false);
    let index = b.mul(wide, Operand::i64(REGS as i64));
    let values = regs.map(|r| {
        // 24 bits of the result, which a float holds exactly.
        let low = b.binary(Binary::And, r.into(), Operand::i32(0xff_ffff));
        b.convert(Ty::F32, low)
    });
    b.store(Y, index, &values, None);
    b.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn lockstep_is_every_thread_alone(acts in acts()) {
        let (y, _) = run_in(&kernel(&acts), Order::Ascending, 1, 1).expect("runs");
        for thread in 0..64 {
            let mut regs = start(thread);
            interpret(&mut regs, &acts, false);
            let expected = regs.map(|r| f64::from(r & 0xff_ffff));
            prop_assert_eq!(&y[thread as usize * REGS..][..REGS], &expected[..], "thread {}", thread);
        }
    }
}
