//! Recurrences of matrices: states against a plain loop, gradients against forward mode and differences, steps, text.

use oplus_dsl::adjoint::adjoint;
use oplus_dsl::build::Builder;
use oplus_dsl::interpret::{Array, Data, InterpretError, Mode, Order, interpret};
use oplus_dsl::ir::{Axis, EndsError, Literal, MatrixScan, Program, Term};
use oplus_dsl::parse::parse;
use oplus_dsl::shard::{ShardError, shard};
use oplus_dsl::step::step;
use oplus_dsl::verify::verify;
use oplus_dsl::{Elem, Ty};

use crate::harness::{Case, Sizes, floats};

/// The parts of a recurrence beside its diagonal, and how it runs.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    pairs: usize,
    dense: bool,
    transposed: bool,
    /// Factors that do not vary along T.
    constant: bool,
    reverse: bool,
    exclusive: bool,
    /// Some steps begin at 0.
    resets: bool,
    /// o = Σ over K of S·q instead of all S.
    read: bool,
    /// The last state as an output.
    last: bool,
}

/// S\[t\] = S\[t−1\]·M\[t\] + x\[t\] with all parts as parameters.
fn program(form: Form) -> Program {
    let mut b = Builder::new("matrices");
    let [t, v, k] = ["T", "V", "K"].map(|name| b.axis(name).unwrap());
    let over = |axes: &[Axis]| if form.constant { axes[1..].to_vec() } else { axes.to_vec() };
    let w = b.param("w", &over(&[t, k]), Elem::F64, None).unwrap();
    let mut terms = vec![];
    for p in 0..form.pairs {
        let column = b.param(&format!("z{p}"), &over(&[t, k]), Elem::F64, None).unwrap();
        let row = b.param(&format!("b{p}"), &[t, k], Elem::F64, None).unwrap();
        terms.push(Term::Pair { column, row });
    }
    if form.dense {
        let j = b.axis("J").unwrap();
        let matrix = b.param("d", &over(&[t, j, k]), Elem::F64, None).unwrap();
        terms.push(Term::Dense { matrix, other: j, transposed: form.transposed });
    }
    let input = b.param("x", &[t, v, k], Elem::F64, None).unwrap();
    let init = b.param("s0", &[v, k], Elem::F64, Some(Literal::Float(0.0))).unwrap();
    let reset = form.resets.then(|| b.param("r", &[t], Elem::Bool, None).unwrap());
    let Form { reverse, exclusive, .. } = form;
    let scan = MatrixScan { axis: t, along: k, decay: w, terms, input, init, reset, reverse, exclusive };
    let states = b.matrix_scan(scan).unwrap();
    if form.read {
        let q = b.param("q", &[t, k], Elem::F64, None).unwrap();
        let product = b.binary(oplus_dsl::ir::Binary::Mul, states, q).unwrap();
        let read = b.sum(k, product).unwrap();
        b.output("o", &[t, v], Elem::F64, read).unwrap();
    } else {
        b.output("s", &[t, v, k], Elem::F64, states).unwrap();
    }
    if form.last {
        let last = if reverse { b.first(t, states, init) } else { b.last(t, states, init) }.unwrap();
        b.output("s_last", &[v, k], Elem::F64, last).unwrap();
    }
    let program = b.finish();
    assert_eq!(verify(&program), Ok(()));
    program
}

/// The states by a loop over plain numbers.
fn plain(case: &Case<'_>, form: Form, [times, v, k]: [usize; 3]) -> Vec<f64> {
    let input = |name: &str| floats(&case.inputs[name]);
    let shift = |t: usize, n: usize| if form.constant { 0 } else { t * n };
    let resets = case.inputs.get("r").map_or(vec![false; times], |r| r.as_bools().unwrap().to_vec());
    let mut state = input("s0");
    let mut states = vec![0.0; times * v * k];
    for visit in 0..times {
        let t = if form.reverse { times - 1 - visit } else { visit };
        let mut matrix = vec![0.0; k * k];
        for i in 0..k {
            matrix[i * k + i] += input("w")[shift(t, k) + i];
            for c in 0..k {
                for p in 0..form.pairs {
                    matrix[i * k + c] += input(&format!("z{p}"))[shift(t, k) + i] * input(&format!("b{p}"))[t * k + c];
                }
                if form.dense {
                    let at = if form.transposed { c * k + i } else { i * k + c };
                    matrix[i * k + c] += input("d")[shift(t, k * k) + at];
                }
            }
        }
        let before = state.clone();
        if resets[t] {
            state.fill(0.0);
        }
        let from = state.clone();
        for row in 0..v {
            for c in 0..k {
                let product: f64 = (0..k).map(|i| from[row * k + i] * matrix[i * k + c]).sum();
                state[row * k + c] = product + input("x")[(t * v + row) * k + c];
            }
        }
        let given = if form.exclusive { &before } else { &state };
        states[t * v * k..][..v * k].copy_from_slice(given);
    }
    states
}

fn sizes([t, v, k]: [usize; 3]) -> [(&'static str, usize); 4] {
    [("T", t), ("V", v), ("K", k), ("J", k)]
}

/// Forms of which each part appears in some.
fn forms() -> Vec<Form> {
    let mut forms = vec![];
    for (pairs, dense, transposed) in
        [(0, false, false), (1, false, false), (2, false, false), (1, true, false), (0, true, true)]
    {
        for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
            let constant = pairs == 1 && reverse;
            let resets = pairs == 2;
            forms.push(Form { pairs, dense, transposed, constant, resets, reverse, exclusive, ..Form::default() });
        }
    }
    forms
}

#[test]
fn states_are_those_of_a_loop() {
    for form in forms() {
        let program = program(form);
        for shape in [[0, 2, 3], [1, 1, 1], [2, 3, 2], [7, 2, 5], [3, 0, 2], [3, 2, 0]] {
            let sizes = sizes(shape);
            let case = Case::new(&program, &sizes, 3);
            let (found, expected) = (floats(&case.run(&program, &case.inputs)["s"]), plain(&case, form, shape));
            assert_eq!(found.len(), expected.len(), "{form:?}");
            for (x, y) in found.iter().zip(expected) {
                assert!((x - y).abs() <= 1e-12 * (1.0 + y.abs()), "{form:?} {shape:?}: {x} instead of {y}");
            }
        }
    }
}

#[test]
fn gradients_are_those_of_differences() {
    for form in forms() {
        for (read, last) in [(false, !form.exclusive), (true, false), (true, !form.exclusive)] {
            let program = program(Form { read, last, ..form });
            Case::new(&program, &sizes([3, 2, 2]), 5).check();
        }
    }
}

#[test]
fn gradients_of_no_and_one_time() {
    for form in forms().into_iter().filter(|form| !form.exclusive) {
        let program = program(Form { read: true, last: true, ..form });
        for times in [0, 1] {
            Case::new(&program, &sizes([times, 2, 2]), 7).check_exact();
        }
    }
}

#[test]
fn second_derivatives() {
    for form in forms() {
        let program = program(Form { read: true, last: !form.exclusive, ..form });
        let bar = adjoint(&program).unwrap();
        Case::new(&bar, &sizes([2, 1, 2]), 9).check_exact();
        assert_eq!(verify(&adjoint(&bar).unwrap()), Ok(()));
    }
}

#[test]
fn no_state_of_all_times_is_made_a_cotangent_of_the_last_one() {
    let program = program(Form { pairs: 1, last: true, read: true, ..Form::default() });
    let bar = adjoint(&program).unwrap();
    let text = bar.to_string();
    assert_eq!(text.matches("matrix_scan").count(), 3, "S[t], S[t−1] and Λ: {text}");
    assert!(!text.contains("select"), "{text}");
}

#[test]
fn the_text_is_read_back() {
    for form in forms() {
        let program = program(Form { last: !form.exclusive, read: true, ..form });
        for program in [adjoint(&program).unwrap(), program] {
            assert_eq!(parse(&program.to_string()), Ok(program));
        }
    }
}

#[test]
fn steps_are_the_whole() {
    for form in forms().into_iter().filter(|form| !form.reverse && !form.exclusive) {
        let program = program(Form { read: true, last: true, ..form });
        let step = step(&program).unwrap();
        assert_eq!((step.states[0].param.as_str(), step.states[0].output.as_str()), ("s0", "s_last"));
        let sizes = sizes([3, 2, 3]);
        let case = Case::new(&program, &sizes, 11);
        let whole = case.run(&program, &case.inputs);
        let mut state = case.inputs["s0"].clone();
        for t in 0..3 {
            let mut inputs = case.inputs.clone();
            for param in &step.program.params {
                let whole = &case.inputs[&param.name];
                if param.axes.len() < whole.sizes.len() {
                    let n = whole.data.len() / 3;
                    let one = match &whole.data {
                        Data::Bool(flags) => Array::bools(&[], vec![flags[t]]),
                        _ => Array::floats(&whole.sizes[1..], &floats(whole)[t * n..][..n]),
                    };
                    inputs.insert(param.name.clone(), one);
                }
            }
            inputs.insert("s0".into(), state);
            let one = case.run(&step.program, &inputs);
            assert_eq!(floats(&one["o"]), floats(&whole["o"])[t * 2..][..2], "{form:?}");
            state = one["s_last"].clone();
        }
        assert_eq!(state, whole["s_last"]);
    }
}

#[test]
fn matrices_are_square() {
    let program = program(Form { dense: true, ..Form::default() });
    let given = |sizes: Sizes<'_>| {
        let mut inputs: Vec<Option<Array>> = vec![];
        for param in &program.params {
            let size = |axis: &Axis| sizes.iter().find(|(name, _)| *name == program.axis_name(*axis)).unwrap().1;
            let sizes: Vec<usize> = param.axes.iter().map(size).collect();
            inputs.push(Some(Array::floats(&sizes, vec![1.0; sizes.iter().product()])));
        }
        interpret(&program, &inputs, Mode::default())
    };
    assert!(given(&[("T", 2), ("V", 1), ("K", 3), ("J", 3)]).is_ok());
    let error = given(&[("T", 2), ("V", 1), ("K", 3), ("J", 4)]).unwrap_err();
    let square = EndsError::Square { axis: "K".into(), size: 3, other: "J".into(), other_size: 4 };
    assert_eq!(error, InterpretError::Ends(square));
}

#[test]
fn the_order_of_combination_changes_nothing() {
    let program = program(Form { pairs: 2, ..Form::default() });
    let inputs = oplus_dsl::testing::inputs(&program, &[5, 2, 3], 1);
    let run = |order| interpret(&program, &inputs, Mode { order, ..Mode::default() }).unwrap();
    assert_eq!(run(Order::Tree), run(Order::Sequential));
}

#[test]
fn what_is_not_a_recurrence_is_refused() {
    let mut b = Builder::new("wrong");
    let [t, k, j] = ["T", "K", "J"].map(|name| b.axis(name).unwrap());
    let x = b.param("x", &[t, k], Elem::F64, None).unwrap();
    let i = b.param("i", &[t, k], Elem::I64, None).unwrap();
    let d = b.param("d", &[t, j, k], Elem::F64, None).unwrap();
    let zero = b.float(Ty::F64, 0.0).unwrap();
    let plain = MatrixScan {
        axis: t,
        along: k,
        decay: x,
        terms: vec![],
        input: x,
        init: zero,
        reset: None,
        reverse: false,
        exclusive: false,
    };
    let dense = |other: Axis| vec![Term::Dense { matrix: d, other, transposed: false }];
    let mut message = |scan: MatrixScan| b.matrix_scan(scan).unwrap_err().to_string();
    assert_eq!(
        message(MatrixScan { init: x, ..plain.clone() }),
        "the initial state of `matrix_scan` must not vary along axis `T`"
    );
    assert_eq!(
        message(MatrixScan { input: i, ..plain.clone() }),
        "the operands of `matrix_scan` are `f64` and `i64`: convert one of them"
    );
    assert_eq!(
        message(MatrixScan { decay: i, input: i, init: i, ..plain.clone() }),
        "`matrix_scan` takes floats, not `i64`"
    );
    let axes = |axis: &str| {
        format!("axis `{axis}` cannot be the axis scanned, or of the state, and another axis of `matrix_scan` as well")
    };
    assert_eq!(message(MatrixScan { along: t, ..plain.clone() }), axes("T"));
    assert_eq!(message(MatrixScan { terms: dense(k), ..plain.clone() }), axes("K"));
    assert_eq!(message(MatrixScan { terms: dense(t), ..plain.clone() }), axes("T"));
    assert_eq!(
        message(MatrixScan { terms: dense(j), input: d, ..plain.clone() }),
        "the input of `matrix_scan` must not vary along axis `J`"
    );
}

#[test]
fn equations_name_the_states() {
    let text = |program: &Program| oplus_dsl::adjoint::equations(program);
    let forward = program(Form { pairs: 1, dense: true, read: true, last: true, ..Form::default() });
    let states = "S[t] = w[t]·S[t−1] + (Σ_K S[t−1]·z0[t])·b0[t] + S[t−1]·d[t] + x[t]    (S[−1] = s0)\n";
    assert_eq!(text(&forward), format!("{states}o[t] = Σ_K S[t]·q[t]\ns_last = S[n−1]\n"));
    let bar = text(&adjoint(&forward).unwrap());
    assert!(bar.contains("Λ[t] = w[t+1]·Λ[t+1] + (Σ_K Λ[t+1]·b0[t+1])·z0[t+1] + Λ[t+1]·d[t+1]ᵀ + ō[t]·q[t]"), "{bar}");
    assert!(bar.contains("w̄[t] = Σ_V S[t−1]·Λ[t]"), "{bar}");
}

#[test]
fn ranks_divide_what_steps_leave_apart() {
    let program = program(Form { pairs: 1, dense: true, read: true, last: true, ..Form::default() });
    for axis in ["T", "K", "J"] {
        let error = ShardError::Matrices { axis: axis.to_owned() };
        assert_eq!(shard(&program, axis), Err(error));
    }
    assert!(shard(&program, "V").is_ok());
}
