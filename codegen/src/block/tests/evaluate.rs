//! Values of a program at points.

use super::{builder, run, thread};
use crate::block::point::{Anchor, Leaves, Point, Position};
use crate::build::{Builder, zero};
use crate::tile::{Memory as Place, Operand, ParamId};
use oplus_dsl::ir::{Axis, Binary, Program, Value};
use oplus_dsl::parse::parse;
use oplus_dsl::{Elem, Ty};

const SIZE: i64 = 32;

/// Parameters p of an axis of 32 elements, at x[32·p …]; reads outside of it give 0.
struct InRows {
    here: Operand,
}

impl Leaves for InRows {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let anchor = match at.anchor {
            Anchor::Here => self.here,
            Anchor::First => Operand::i64(0),
            Anchor::Last => Operand::i64(SIZE - 1),
        };
        let index = b.add(anchor, at.offset);
        let above = b.ge(index, 0);
        let below = b.lt(index, SIZE);
        let inside = b.and(above, below);
        let place = b.add(index, SIZE * i64::from(param));
        b.load(Place::Global(ParamId(0)), place, 1, Some(inside), zero(Ty::F64))[0]
    }

    fn state(&mut self, _: &mut Builder, _: Value, field: u32, _: Position) -> Operand {
        panic!("the programs have no scans, but field {field} is read")
    }

    fn index(&mut self, _: &mut Builder, _: Axis) -> Operand {
        self.here
    }

    fn size(&mut self, _: &mut Builder, _: Axis) -> Operand {
        Operand::i64(SIZE)
    }
}

/// The values of a program's output at all points of its one axis, and how many statements compute them.
fn values(program: &Program, x: &[f64]) -> (Vec<f64>, usize) {
    let mut b = builder(SIZE as u32, Elem::F64);
    let own = thread(&mut b);
    let here = b.convert(Ty::I64, own);
    let mut point = Point::new(program, Some(Axis(0)));
    let value = point.here(&mut b, &mut InRows { here }, program.outputs[0].value);
    b.store(Place::Global(ParamId(1)), here, &[value], None);
    let kernel = b.finish();
    (run(&kernel, x, SIZE as usize), kernel.body.len())
}

/// The text of a program of two parameters x and y along L, and numbers for these.
fn program(nodes: &str, result: u32) -> Program {
    let text = format!(
        "program p {{ axes L; param x: f64[L]; param y: f64[L]; %0: f64[L] = param x; %1: f64[L] = param y; {nodes} \
         output z: f64[L] = %{result}; }}"
    );
    parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn inputs() -> (Vec<f64>, Vec<f64>) {
    let of = |k: usize| (0..SIZE as usize).map(|i| (i as f64 + 0.1) * (k as f64 + 0.7)).collect();
    (of(1), of(2))
}

fn check(nodes: &str, result: u32, expected: impl Fn(&[f64], &[f64], usize) -> f64) {
    let (x, y) = inputs();
    let (found, _) = values(&program(nodes, result), &[x.clone(), y.clone()].concat());
    let expected: Vec<f64> = (0..SIZE as usize).map(|i| expected(&x, &y, i)).collect();
    assert_eq!(found, expected, "{nodes}");
}

#[test]
fn products_are_rounded_once_with_their_sums() {
    check("%2: f64[L] = %0 * %1; %3: f64[L] = %2 + %0;", 3, |x, y, i| x[i].mul_add(y[i], x[i]));
    check("%2: f64[L] = %0 * %1; %3: f64[L] = %0 + %2;", 3, |x, y, i| x[i].mul_add(y[i], x[i]));
    check("%2: f64[L] = %0 * %1; %3: f64[L] = %2 - %1;", 3, |x, y, i| x[i].mul_add(y[i], -y[i]));
    check("%2: f64[L] = %0 * %1; %3: f64[L] = %1 - %2;", 3, |x, y, i| (-x[i]).mul_add(y[i], y[i]));
    check("%2: f64[L] = %0 * %1; %3: f64[L] = %2 / %1;", 3, |x, y, i| x[i] * y[i] / y[i]);
}

#[test]
fn shifts_read_neighbours_and_fill_beyond_the_ends() {
    let of = |x: &[f64], i: i64| usize::try_from(i).ok().and_then(|i| x.get(i)).copied();
    for by in [1_i64, -1, 3, -31, 32, -40] {
        let nodes = format!("%2: f64 = const 0.5; %3: f64[L] = shift(L, {by}, %0, %2);");
        check(&nodes, 3, |x, _, i| of(x, i as i64 - by).unwrap_or(0.5));
    }
    let twice = "%2: f64 = const 0.5; %3: f64[L] = shift(L, 1, %0, %2); %4: f64[L] = %3 * %1;
        %5: f64 = const 7.0; %6: f64[L] = shift(L, -2, %4, %5);";
    check(twice, 6, |x, y, i| of(y, i as i64 + 2).map_or(7.0, |y| y * x[i + 1]));
}

#[test]
fn the_ends_of_the_axis_are_read_from_everywhere() {
    let nodes = "%2: f64 = const 0.0; %3: f64 = last(L, %0, %2); %4: f64 = first(L, %1, %2); %5: f64[L] = %0 * %3; \
        %6: f64[L] = %5 / %4;";
    check(nodes, 6, |x, y, i| x[i] * x[31] / y[0]);
}

#[test]
fn a_value_is_emitted_once_however_often_it_is_read() {
    let (x, y) = inputs();
    let both = [x, y].concat();
    let (_, one) = values(&program("%2: f64[L] = sqrt(%0);", 2), &both);
    let (_, shared) = values(&program("%2: f64[L] = sqrt(%0); %3: f64[L] = %2 * %2; %4: f64[L] = %3 * %2;", 4), &both);
    assert_eq!(shared, one + 2);
}

#[test]
fn values_may_be_of_any_depth() {
    const DEPTH: u32 = 30_000;
    let mut program = program("%2: f64[L] = %0 - %1;", 2);
    let last = program.nodes[2].clone();
    for k in 3..DEPTH {
        let mut node = last.clone();
        let (op, other) = if k % 2 == 0 { (Binary::Sub, Value(0)) } else { (Binary::Max, Value(1)) };
        node.op = oplus_dsl::ir::Op::Binary(op, Value(k - 1), other);
        program.nodes.push(node);
    }
    program.outputs[0].value = Value(DEPTH - 1);
    let (x, y) = inputs();
    let (found, statements) = values(&program, &[x.clone(), y.clone()].concat());
    let expected = |i: usize| (3..DEPTH).fold(x[i] - y[i], |v, k| if k % 2 == 0 { v - x[i] } else { v.max(y[i]) });
    assert_eq!(found, (0..SIZE as usize).map(expected).collect::<Vec<_>>());
    assert!(statements < DEPTH as usize + 20, "{statements}");
}
