//! Sweeps by machine code beside those by instructions: not a bit differs.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::Program;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, run_with};
use super::operators::{ROTATIONS, programs};
use super::products::plan;
use crate::cpu::Compiled;

const KERNELS: &str = "
    op Matrix(a, b, c, d, u, v) {
        identity (1, 0, 0, 1, 0, 0);
        combine(l, r) (
            r.a * l.a + r.b * l.c,
            r.a * l.b + r.b * l.d,
            r.c * l.a + r.d * l.c,
            r.c * l.b + r.d * l.d,
            r.a * l.u + r.b * l.v + r.u,
            r.c * l.u + r.d * l.v + r.v,
        );
    }
    op Peak(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }
    fn matrices(a: [B, T], b: [B, T], c: [B, T], d: [B, T], p: [B, T], q: [B, T]) -> (u: [B, T], v: [B, T]) {
        let s = scan(T, Matrix(a, b, c, d, p, q));
        (u, v) = (s.u, s.v);
    }
    fn backwards(a: [B, T], b: [T], c: [B, T], d: [B], p: [B, T], q: [B, T]) -> (u: [B, T], v: [B, T], w: [B, T]) {
        let s = scan(T, Matrix(a, b, c, d, p, q), exclusive, reverse);
        (u, v, w) = (s.u * s.v - a, exp(s.v), relu(s.a));
    }
    fn peaks(d: [B, T], x: [B, T]) -> (h: [B, T], low: [B, T]) {
        let s = scan(T, Peak(d, x));
        (h, low) = (s.h, min(s.h, 1 / x) - abs(s.h));
    }
";

const AFFINE: &str = "
    op Step(a, b) {
        identity (1, 0);
        combine(l, r) (l.a * r.a, r.a * l.b + r.b);
    }
    fn affine(a: [B, T], b: [B, T]) -> (h: [B, T], g: [B, T]) {
        h = scan(T, Step(a, b)).b;
        g = h * a + 1.0;
    }
";

/// Elements in one row and in several, with whole tiles and a rest.
const SIZES: [[usize; 2]; 4] = [[1, 1 << 18], [1, (1 << 18) + 77], [5, 70_000], [17, 16_384]];

/// Bits, with one for all that is no number.
fn bits(array: &Array) -> Vec<u64> {
    let Data::Float(all) = &array.data else { panic!("floating-point numbers") };
    all.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
}

/// Compares with instructions, on one thread and on all. How many stages have machine code.
fn compare(program: &Program, sizes: &[usize], inputs: &[Option<Array>]) -> usize {
    let compiled = || Compiled::new(program, false).unwrap();
    let run = |compiled: &Compiled| run_with(compiled, program, sizes, inputs, Strides::Dense);
    let expected = run(&compiled().interpreted());
    let native = compiled();
    for found in [run(&native), run(&compiled().with_workers(1))] {
        for ((found, expected), output) in found.iter().zip(&expected).zip(&program.outputs) {
            let is_equal = bits(found) == bits(expected);
            assert!(is_equal, "output `{}` at sizes {sizes:?} of\n{program}", output.name);
        }
    }
    native.native_stages()
}

#[test]
fn machine_code_gives_the_bits_of_the_instructions() {
    let kernels = programs(&format!("{ROTATIONS}{KERNELS}"));
    let mut with_code = [0; 2];
    for (k, kernel) in kernels.iter().enumerate() {
        for elem in [Elem::F32, Elem::F64] {
            let programs = [kernel.instantiate(elem), adjoint(kernel).unwrap().instantiate(elem)];
            for (program, with_code) in programs.iter().zip(&mut with_code) {
                let sizes = SIZES[(k + usize::from(elem == Elem::F64)) % SIZES.len()];
                *with_code += compare(program, &sizes, &inputs(program, &sizes, k as u64));
            }
        }
    }
    assert_eq!(with_code, [8, 6], "stages of {} kernels and their gradients", kernels.len());
}

/// A scan with a loop of its own, forward and as a gradient, with whole tiles and a rest, and results of 16 MB: maps and stores are machine code.
#[test]
fn maps_and_stores_by_machine_code_give_the_bits_of_the_instructions() {
    let kernel = &programs(AFFINE)[0];
    let mut stages = 0;
    for program in [kernel.instantiate(Elem::F32), adjoint(kernel).unwrap().instantiate(Elem::F32)] {
        for sizes in [[1, (1 << 21) + 77], [64, 33_000]] {
            let inputs = inputs(&program, &sizes, 5);
            let run = |compiled: &Compiled| run_with(compiled, &program, &sizes, &inputs, Strides::Dense);
            let expected = run(&Compiled::new(&program, false).unwrap().interpreted());
            let native = Compiled::new(&program, false).unwrap();
            for (found, expected) in run(&native).iter().zip(&expected) {
                assert!(bits(found) == bits(expected), "sizes {sizes:?} of\n{program}");
            }
            stages += native.mapped_stages();
        }
    }
    assert_eq!(stages, 4);
}

/// Products of rotations that grow overflow where no state does, and parts are stepped through instead.
#[test]
fn machine_code_gives_way_where_totals_lose_states() {
    let kernels = programs(&format!("{ROTATIONS}{KERNELS}"));
    for kernel in &kernels[..2] {
        for program in [kernel.instantiate(Elem::F32), adjoint(kernel).unwrap().instantiate(Elem::F32)] {
            let sizes = [2, 1 << 17];
            let mut inputs = inputs(&program, &sizes, 3);
            for array in inputs.iter_mut().flatten() {
                let Data::Float(all) = &mut array.data else { panic!("floating-point numbers") };
                // A stretch that grows by far more than f32 holds, where the state is 0 at first.
                all.iter_mut().enumerate().for_each(|(i, x)| *x = if (i / 300) % 7 == 3 { 4.0 } else { *x / 4.0 });
            }
            assert_eq!(compare(&program, &sizes, &inputs), 1);
        }
    }
}

/// bf16 is stored in another type than it is computed in, so results go through registers.
#[test]
fn small_calls_and_other_types_take_instructions() {
    let kernels = programs(&format!("{ROTATIONS}{KERNELS}"));
    let program = kernels[0].instantiate(Elem::F32);
    let sizes = [1, (1 << 18) - 1];
    assert_eq!(compare(&program, &sizes, &inputs(&program, &sizes, 1)), 0);
    let program = kernels[0].instantiate(Elem::Bf16);
    let sizes = [1, 1 << 18];
    compare(&program, &sizes, &inputs(&program, &sizes, 1));
}

#[test]
fn explain_says_which_steps_are_compiled_and_what_llvm_has_refused() {
    let program = programs(ROTATIONS)[0].instantiate(Elem::F32);
    let mut plan = plan(&program, &[1, 1 << 18]);
    assert!(plan.walks[0].is_compiled && plan.to_string().contains("steps and the maps that follow are machine code"));
    assert_eq!(plan.walks[0].not_compiled, None);
    (plan.walks[0].is_compiled, plan.walks[0].not_compiled) = (false, Some("LLVM has none".into()));
    let words = plan.to_string();
    assert!(words.contains("\n  LLVM has none\n") && !words.contains("machine code"), "{words}");
}
