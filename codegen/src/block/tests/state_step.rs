//! Values at several states and steps of a lane: right at each, and computed once for all that share them.

use super::{X, Y, builder, run, thread};
use crate::block::state_step::{Evaluator, Source, StateStep};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op, Program, Value};
use oplus_dsl::parse::parse;

const STATES: u32 = 4;
const STEPS: u32 = 3;

/// sqrt(x[t]) · y[n] + y[n].
fn program() -> Program {
    let text = "program p { axes T, N; param x: f64[T]; param y: f64[N]; %0: f64[T] = param x; %1: f64[N] = param y;
        %2: f64[T] = sqrt(%0); %3: f64[T, N] = %2 * %1; %4: f64[T, N] = %3 + %1; output z: f64[T, N] = %4; }";
    parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// The elements of x for the steps, and behind them those of y for the states, in memory.
struct InMemory<'p>(&'p Program);

impl Source for InMemory<'_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        let place = match self.0.node(value).op {
            Op::Param(0) => at.step,
            Op::Param(_) => STEPS + at.state,
            _ => return None,
        };
        Some(b.load1(X, Operand::i64(i64::from(place))))
    }
}

#[test]
fn what_states_share_is_computed_once_for_each_step() {
    let program = program();
    let mut b = builder(32, Elem::F64);
    let own = thread(&mut b);
    let is_first = b.eq(own, 0);
    let (mut evaluator, mut source) = (Evaluator::new(&program, Axis(0), Axis(1)), InMemory(&program));
    for state in 0..STATES {
        for step in 0..STEPS {
            let at = StateStep { state, step };
            let value = evaluator.value(&mut b, &mut source, program.outputs[0].value, at);
            b.store(Y, Operand::i64(i64::from(state * STEPS + step)), &[value], Some(is_first));
        }
    }
    let kernel = b.finish();
    let x: Vec<f64> = (0..STEPS + STATES).map(|i| f64::from(i) + 0.7).collect();
    let (steps, states) = x.split_at(STEPS as usize);
    let of = |y: &f64| steps.iter().map(|x| x.sqrt().mul_add(*y, *y)).collect::<Vec<_>>();
    assert_eq!(run(&kernel, &x, (STATES * STEPS) as usize), states.iter().flat_map(of).collect::<Vec<_>>());
    let text = kernel.to_string();
    assert_eq!(text.matches("sqrt").count(), STEPS as usize, "{text}");
    assert_eq!(text.matches("load").count(), (STEPS + STATES) as usize, "{text}");
}
