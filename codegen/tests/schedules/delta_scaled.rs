//! Gradients of delta rules in `f16`, whose walks multiply states by powers of two: numbers of many magnitudes, one after the other.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Program};

use crate::chunk_delta::{inputs, model_of, simulated, sizes};
use crate::device::Placement;
use crate::oracle::rounded;

/// Times of one magnitude.
const SPAN: usize = 48;
/// The root mean square of an error of one such span may be so much of that of what is exact.
const RULE: f64 = 0.005;
/// Results are rounded to multiples of the least number of `f16`.
const LEAST: f64 = 1.0 / (1 << 25) as f64;

/// What the numbers of a span are multiplied by.
#[derive(Clone, Copy)]
struct Magnitudes {
    value: f64,
    key: f64,
    /// Of the logarithms of decays.
    decay: f64,
}

/// Values that grow at once by 2²⁶, that are nothing and come back, that fall as the state is forgotten; and keys so short that the state stays
/// far below the values.
const SPANS: [Magnitudes; 8] = [
    Magnitudes { value: 0.0, key: 1.0, decay: 1.0 },
    Magnitudes { value: 1.0, key: 1.0, decay: 1.0 },
    Magnitudes { value: 9e-4, key: 1.0, decay: 60.0 },
    Magnitudes { value: 60000.0, key: 1.0, decay: 1.0 },
    Magnitudes { value: 0.0, key: 1.0, decay: 20.0 },
    Magnitudes { value: 0.01, key: 1.0, decay: 60.0 },
    Magnitudes { value: 60000.0, key: 0.001, decay: 60.0 },
    Magnitudes { value: 1.0, key: 0.001, decay: 60.0 },
];

const LENGTHS: [usize; 5] = [1, 1, SPAN * SPANS.len(), 128, 64];

/// Inputs whose magnitudes are those of the spans. The parameters of models have time as their third axis.
fn given(program: &Program) -> Vec<Array> {
    let mut all = inputs(program, &sizes(program, LENGTHS));
    for (param, array) in program.params.iter().zip(&mut all) {
        let Data::Float(data) = &mut array.data else { continue };
        let row: usize = array.sizes[3..].iter().product();
        for (i, x) in data.iter_mut().enumerate() {
            let Magnitudes { value, key, decay } = SPANS[i / row / SPAN];
            *x *= match param.name.as_str() {
                "v" => value,
                "k" => key,
                "g" => decay,
                // Results stay in the range of `f16`.
                "q" => 0.05,
                "o.bar" => 0.01,
                _ => 1.0,
            };
            *x = rounded(*x, param.elem);
        }
    }
    all
}

/// The root mean squares of each span of an array along the third axis: of the error, and of what is exact.
fn errors(wanted: &Array, found: &Array) -> Vec<[f64; 2]> {
    let (all, found) = (wanted.as_floats().expect("floats"), found.as_floats().expect("floats"));
    let len = SPAN * wanted.sizes[3..].iter().product::<usize>();
    let mean = |squares: f64| (squares / len as f64).sqrt();
    let of = |(wanted, found): (&[f64], &[f64])| {
        let error: f64 = wanted.iter().zip(found).map(|(x, y)| (x - y) * (x - y)).sum();
        [error, wanted.iter().map(|x| x * x).sum()].map(mean)
    };
    all.chunks(len).zip(found.chunks(len)).map(of).collect()
}

/// Compares outputs of some names span by span.
fn check(program: &Program, names: &[&str], is_taken: impl Fn(&Schedule) -> bool) {
    let all = given(program);
    let found = simulated(program, (LENGTHS, &all), (Placement::Contiguous, Order::Random(5)), is_taken);
    let optional: Vec<Option<Array>> = all.into_iter().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes(program, LENGTHS)).collect();
    let wanted = interpret_sized(program, &optional, &named, Mode::default()).expect("runs");
    let mut compared = 0;
    for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
        if names.contains(&output.name.as_str()) {
            let errors = errors(wanted, found);
            let holds = errors.iter().all(|[error, exact]| *error < RULE * exact + LEAST);
            assert!(holds, "{} `{}`: {errors:?}", program.name, output.name);
            compared += 1;
        }
    }
    assert_eq!(compared, names.len());
}

/// With so many keys that walks scale their states.
#[test]
fn walks_of_gradients_of_f16_take_any_magnitudes() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let gradient = adjoint(&model_of(name, Elem::F16)).expect("differentiable");
        let is_meant = |s: &Schedule| matches!(s, Schedule::ChunkDeltaBackward(s) if s.vector > 1);
        check(&gradient, &["v.bar", "q.bar"], is_meant);
    }
}
